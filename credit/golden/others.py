"""Compares the formulas of losses.py with what TRL and verl compute themselves.

    pip install --no-deps trl verl && pip install torch numpy && python others.py

It is no test of every day, since it needs PyTorch. Their packages need not be
importable: the functions are taken out of the installed sources by name and run as
they are, in float64, on rows drawn as for the golden file; derivatives are PyTorch's.
Last run against trl 1.16.0 and verl 0.9.1.
"""

import ast
import collections
import importlib.util
import math
import pathlib
import random
import types
import typing
from decimal import Decimal

import losses
import torch

TOLERANCE = 1e-9


class Config(types.SimpleNamespace):
    """Settings, in the two manners in which verl reads them."""

    def get(self, name, default=None):
        return getattr(self, name, default)


def functions(package, file, *names, **known):
    """The functions and constants of a source file, without what it imports."""
    root = pathlib.Path(importlib.util.find_spec(package).submodule_search_locations[0])
    space = dict(
        torch=torch, math=math, Any=typing.Any, Optional=typing.Optional, DictConfig=Config, ActorConfig=Config, AlgoConfig=(), **known
    )
    for node in ast.walk(ast.parse((root / file).read_text())):
        target = node.targets[0] if isinstance(node, ast.Assign) else getattr(node, "target", None)
        if isinstance(node, ast.FunctionDef) and node.name in names:
            node.decorator_list = []
        elif not (isinstance(node, (ast.Assign, ast.AnnAssign)) and getattr(target, "id", None) in names):
            continue
        exec(compile(ast.Module([node], []), file, "exec"), space)
    missing = [n for n in names if n not in space]
    assert not missing, f"{package} has no {missing} in {file}"
    return types.SimpleNamespace(**{n: space[n] for n in names})


MEANS = functions("verl", "utils/torch_functional.py", "masked_sum", "masked_mean")
LOSSES = functions(
    "verl",
    "trainer/ppo/core_algos.py",
    *("agg_loss", "compute_policy_loss_vanilla", "compute_policy_loss_gspo", "compute_policy_loss_cispo"),
    *("compute_policy_loss_dppo_tv", "kl_penalty", "kl_penalty_forward"),
    verl_F=MEANS,
)
ROLLOUT = functions(
    "verl",
    "trainer/ppo/rollout_corr_helper.py",
    *("SAFETY_BOUND", "SUPPORTED_ROLLOUT_RS_OPTIONS", "TOKEN_LEVEL_ROLLOUT_RS_OPTIONS", "_parse_rollout_is_threshold"),
    *("_parse_rollout_rs_thresholds", "compute_rollout_rejection_mask", "compute_rollout_correction_weights"),
    verl_F=MEANS,
    compute_is_metrics=lambda **_: {},
    compute_rs_metrics=lambda **_: {},
)
TRL = functions("trl", "trainer/grpo_trainer.py", "_compute_loss", nanmin=torch.min, nanmax=torch.max)


class Batch:
    """A row as others see it: one sequence for each call, padded."""

    def __init__(self, row):
        self.row, self.places = row, list(row.calls.values())
        self.n = len(row.trained)
        self.mask = self.of([Decimal(1)] * len(row.call))
        for name in row.FIELDS:
            setattr(self, name, self.of(getattr(row, name)))
        self.current.requires_grad_()

    def of(self, xs):
        out = torch.zeros(len(self.places), max(map(len, self.places)), dtype=torch.float64)
        for i, tokens in enumerate(self.places):
            for j, t in enumerate(tokens):
                out[i, j] = float(xs[t])
        return out

    def compare(self, name, objective, loss, value=True):
        """Holds loss, one of a mean over tokens, against the formulas."""
        (gradient,) = torch.autograd.grad(loss, self.current)
        want = self.of(objective.gradient(self.row))
        apart = float((gradient - want).abs().max())
        if value:
            apart = max(apart, abs(float(loss.detach()) - float(objective.loss(self.row, self.row.current, self.row.current))))
        assert apart < TOLERANCE, (name, apart)
        SEEN[name] = max(SEEN[name], apart)


SEEN = collections.defaultdict(float)


def verl_policy(b, function, low, high, old, dual=1e30, weights=None, mask=None):
    config = Config(clip_ratio=low, clip_ratio_low=low, clip_ratio_high=high, clip_ratio_c=dual, global_batch_info={"batch_num_tokens": b.n})
    mask = b.mask if mask is None else mask
    return function(old, b.current, b.advantage, mask, "token-mean", config, rollout_is_weights=weights)[0]


def verl(b, even):
    """Surrogates, corrections and penalties of verl."""
    clip, kinds = dict(low=0.2, high=0.28), losses.CORRECTIONS
    ppo, old = LOSSES.compute_policy_loss_vanilla, b.sampled
    b.compare("verl vanilla", losses.Objective("ppo_clip", **clip), verl_policy(b, ppo, **clip, old=old))
    b.compare("verl dual clip", losses.Objective("ppo_clip", **clip, dual=1.5), verl_policy(b, ppo, **clip, old=old, dual=1.5))
    gspo = dict(low=0.05, high=0.08)
    for rows in (b, even):
        loss = verl_policy(rows, LOSSES.compute_policy_loss_gspo, **gspo, old=rows.sampled)
        rows.compare("verl gspo", losses.Objective("gspo", **gspo), loss)
    cispo = dict(low=0.3, high=0.4)
    b.compare("verl cispo", losses.Objective("cispo", **cispo), verl_policy(b, LOSSES.compute_policy_loss_cispo, **cispo, old=old))
    dppo = dict(low=0.1, high=0.15)
    loss = verl_policy(b, LOSSES.compute_policy_loss_dppo_tv, **dppo, old=old)
    b.compare("verl dppo_tv, derivative", losses.Objective("dppo_tv", **dppo), loss, value=False)

    gap = b.proximal - b.sampled
    for kind, level, limits in (("decoupled", "token", "1.2"), ("mis", "token", "0.75_1.3"), ("sequence", "sequence", "1.4")):
        weights, _ = ROLLOUT.compute_rollout_correction_weights(gap, b.mask, level, limits)
        loss = verl_policy(b, ppo, **clip, old=b.proximal, weights=weights)
        b.compare(f"verl {kind}", losses.Objective("ppo_clip", correction=kind, **clip, **kinds[kind]), loss)
    for kind, option, limits in (("geometric", "seq_mean_k1", f"{1 / 1.1}_{1 / 0.9}"), ("k3", "seq_mean_k3", "0.03")):
        mask, _ = ROLLOUT.compute_rollout_rejection_mask(gap, b.mask, option, limits)
        loss = verl_policy(b, ppo, **clip, old=b.proximal, mask=mask)
        b.compare(f"verl {kind}", losses.Objective("ppo_clip", correction=kind, **clip, **kinds[kind]), loss)

    for kl in ("k1", "k2", "k3"):
        silent = Batch(b.row)
        silent.row = quiet(b.row)
        penalty = LOSSES.kl_penalty(silent.current, silent.reference, kl)
        objective = losses.Objective("importance_sampling", kl=kl, kl_weight=1)
        silent.compare(f"verl {kl}", objective, (penalty * silent.mask).sum() / silent.n)


def quiet(row):
    """The row without advantages, of whose loss the penalty is left."""
    out = losses.Row(row.call, **{name: [] for name in row.FIELDS})
    out.__dict__.update(row.__dict__)
    out.advantage = [Decimal(0)] * len(row.call)
    return out


class GRPO:
    """What TRL's loss reads of its trainer."""

    aux_loss_enabled = use_vllm = vllm_importance_sampling_correction = _entropy_bonus_enabled = False
    top_entropy_quantile, off_policy_mask_threshold, current_gradient_accumulation_steps = 1.0, None, 1

    def __init__(self, b, **settings):
        self.logprobs, self.entropies = b.current, b.entropy
        same = lambda x, **_: x
        self.accelerator = types.SimpleNamespace(num_processes=1, gather=same, reduce=same)
        self.model, self._metrics = types.SimpleNamespace(training=True), {"train": collections.defaultdict(list)}
        self.args = types.SimpleNamespace(steps_per_generation=1, delta=settings.pop("delta", None), use_bias_correction_kl=settings.pop("unbiased", False))
        self.loss_type, self.importance_sampling_level, self.beta = "dapo", "token", 0.0
        self.__dict__.update(settings)

    def _get_per_token_logps_and_entropies(self, *_, **__):
        return self.logprobs, self.entropies, None

    def loss(self, b, old, **more):
        none = torch.zeros(len(b.places), 0, dtype=torch.long)
        return TRL._compute_loss(
            self,
            None,
            dict(
                prompt_ids=none, prompt_mask=none, completion_ids=b.mask.long(), completion_mask=b.mask.long(), advantages=b.advantage,
                old_per_token_logps=old, ref_per_token_logps=b.reference, num_items_in_batch=b.mask.sum(), **more,
            ),
        )  # fmt: skip


def trl(b, even):
    """TRL's losses; its loss of whole sequences wants one advantage for each."""
    clip, bounds = dict(low=0.2, high=0.28), dict(epsilon_low=0.2, epsilon_high=0.28)
    b.compare("trl dapo", losses.Objective("ppo_clip", **clip), GRPO(b, **bounds).loss(b, b.sampled))
    b.compare("trl delta", losses.Objective("ppo_clip", **clip, dual=1.5), GRPO(b, delta=1.5, **bounds).loss(b, b.sampled))
    trainer = GRPO(even, importance_sampling_level="sequence", epsilon_low=0.05, epsilon_high=0.08)
    even.compare("trl sequence level", losses.Objective("gspo", low=0.05, high=0.08), trainer.loss(even, even.sampled))
    b.compare("trl cispo", losses.Objective("cispo", low=1, high=4), GRPO(b, loss_type="cispo", epsilon_high=5).loss(b, b.sampled))
    for kl in ("k3", "unbiased"):
        objective = losses.Objective("ppo_clip", **clip, kl=kl, kl_weight=0.3)
        b.compare(f"trl {kl}", objective, GRPO(b, beta=0.3, unbiased=kl == "unbiased", **bounds).loss(b, b.sampled))
    ratio = (b.proximal - b.sampled).exp().clamp(max=1.2)
    trainer = GRPO(b, use_vllm=True, vllm_importance_sampling_correction=True, beta=0.3, **bounds)
    objective = losses.Objective("ppo_clip", **clip, correction="decoupled", cap=1.2, kl="k3", kl_weight=0.3)
    b.compare("trl truncated importance sampling, k3", objective, trainer.loss(b, b.proximal, importance_sampling_ratio=ratio))


def aggregations():
    want = losses.aggregations()
    lengths = want["trajectories"]
    mask = torch.tensor([[float(t < n) for t in range(max(lengths))] for n in lengths], dtype=torch.float64)
    for ours, theirs in (("token_mean", "token-mean"), ("sequence_mean", "seq-mean-token-mean"), ("constant", "seq-mean-token-sum-norm")):
        for i, n in enumerate(lengths):
            if n:
                one = torch.zeros_like(mask)
                one[i, 0] = 1
                got = float(LOSSES.agg_loss(one, mask, theirs, loss_scale_factor=want["length"]))
                SEEN[f"verl {theirs}"] = max(SEEN[f"verl {theirs}"], abs(got - want[ours][i]))
                assert abs(got - want[ours][i]) < 1e-8, (theirs, got)  # its mean adds 1e-8 to a length


def main():
    rng = random.Random(7)
    for _ in range(50):
        pair = [losses.draw(rng, losses.calls([5, 1, 3, 4]), uniform=u) for u in (False, True)]
        for row in pair:
            row.weight = [Decimal(0) if c < 0 else Decimal(1) / len(row.trained) for c in row.call]
        batches = [Batch(row) for row in pair]
        verl(*batches)
        trl(*batches)
    aggregations()
    for name, apart in SEEN.items():
        print(f"{name:40} {apart:.1e}")


if __name__ == "__main__":
    main()
