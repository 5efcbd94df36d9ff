"""Records what gepa decides, for TestGEPADecidesAsItsPackage.

    python3 -m venv venv && venv/bin/pip install gepa==0.1.4
    venv/bin/python gepa_trace.py > gepa.json

The agent, the grader and the reflector are scripts, so nothing leaves this process. Scores
are multiples of 1/8, whose sums are exact in every order.

Three things in the package depend on the order of a Python set, which is an accident of the
interpreter: the order of a front, of candidates to merge, and of the names of prompts. They
are made definite here, and nothing else is changed: fronts are walked in ascending order, a
draw from a list of numbers is a draw from the sorted list, and the process is started with a
hash seed for which a set of the names has the order of the prompts. The generator of random
numbers keeps a record of its draws; it draws a sample as one draws cards, which Python does
as well for lists of up to 21.
"""

import json
import os
import random
import subprocess
import sys
import types

NAMES = ["planner", "writer", "critic"]

# seed, prompts, train tasks, validation tasks, minibatch, merge, proposals
CASES = [
    (1, 1, 9, 6, 3, False, 40),
    (2, 2, 10, 8, 3, False, 40),
    (3, 2, 7, 12, 3, True, 60),
    (4, 3, 12, 10, 3, True, 60),
    (5, 3, 5, 6, 4, True, 50),
    (6, 2, 2, 5, 3, True, 60),
    (7, 3, 20, 20, 5, True, 50),
    (8, 2, 30, 25, 3, True, 60),
    (9, 3, 8, 9, 1, True, 60),
    (10, 3, 16, 16, 2, True, 70),
]


def restart_with_a_hash_seed():
    if os.environ.get("GEPA_TRACE") == "started":
        assert all(list(set(NAMES[:n])) == NAMES[:n] for n in (1, 2, 3))
        return
    check = f"n={NAMES!r}; raise SystemExit(not all(list(set(n[:k])) == n[:k] for k in (1, 2, 3)))"
    for seed in range(1000):
        env = dict(os.environ, PYTHONHASHSEED=str(seed))
        if subprocess.run([sys.executable, "-c", check], env=env).returncode == 0:
            os.execve(sys.executable, [sys.executable, *sys.argv], dict(env, GEPA_TRACE="started"))
    raise SystemExit("no hash seed orders the names")


class Recorder(random.Random):
    """Draws as Python does, and keeps a record: [n, number below n], or [0, fraction]."""

    draws = []

    def _randbelow(self, n):
        value = int(super().random() * n)
        self.draws.append([n, value])
        return value

    def random(self):
        value = super().random()
        self.draws.append([0, value])
        return value

    def choice(self, seq):
        return ordered(seq)[self._randbelow(len(seq))]

    def sample(self, population, k, *, counts=None):
        pool, out = ordered(population), []
        for left in range(len(pool), len(pool) - k, -1):
            j = self._randbelow(left)
            out.append(pool[j])
            pool[j] = pool[left - 1]
        return out

    def choices(self, population, weights=None, *, cum_weights=None, k=1):
        pairs = sorted(zip(population, weights, strict=True))
        return super().choices([p for p, _ in pairs], [w for _, w in pairs], k=k)


def ordered(seq):
    return sorted(seq) if all(isinstance(x, int) for x in seq) else list(seq)


class Ascending(set):
    def __iter__(self):
        return iter(sorted(super().__iter__()))


class World:
    """Texts have a hidden level for each task; the score adds the levels of a candidate's
    texts. A new text moves some levels of its parent up or down."""

    def __init__(self, seed, names, train, validation):
        self.random = random.Random(1000 + seed)
        self.mixed = seed % 2 == 1
        self.tasks = [("train", i) for i in range(train)] + [("validation", i) for i in range(validation)]
        self.levels = {}
        self.seed = {}
        for name in names:
            text = f"{name[0]}0"
            self.levels[text] = {t: self.random.choice([0, 1, 2]) for t in self.tasks}
            self.seed[name] = text

    def propose(self, name, parent):
        text = f"{name[0]}{len(self.levels)}"
        if len(self.levels) > 12 and self.random.random() < 0.1:  # a text that it has proposed before
            return self.random.choice([t for t in self.levels if t[0] == name[0] and t != parent])
        gain = self.random.choice([-1, 0, 1, 1, 2])
        part = self.random.random()
        if self.mixed:  # what helps on one task harms on another
            self.levels[text] = {
                t: max(0, level + self.random.choice([-3, -1, 0, 0, 1, 1, 2])) for t, level in self.levels[parent].items()
            }
            return text
        self.levels[text] = {
            t: max(0, level + (gain if self.random.random() < part else self.random.choice([-1, 0, 0, 0])))
            for t, level in self.levels[parent].items()
        }
        return text

    def score(self, candidate, task):
        total = sum(self.levels[text][task] for text in candidate.values())
        # The last validation task can't be solved, so that no search is ever finished.
        return min(total, 7 if task == self.tasks[-1] else 8)


class Adapter:
    propose_new_texts = None

    def __init__(self, world, events):
        self.world, self.events = world, events

    def evaluate(self, batch, candidate, capture_traces=False):
        from gepa.core.adapter import EvaluationBatch

        eighths = [self.world.score(candidate, task) for task in batch]
        self.events.append(
            {
                "evaluate": list(candidate.values()),
                "split": batch[0][0],
                "tasks": [i for _, i in batch],
                "eighths": eighths,
            }
        )
        return EvaluationBatch(
            outputs=[None] * len(batch),
            scores=[x / 8 for x in eighths],
            trajectories=[{"task": list(t)} for t in batch] if capture_traces else None,
        )

    def make_reflective_dataset(self, candidate, eval_batch, components):
        (name,) = components
        self.asked = (candidate, name)
        return {name: [{"task": str(t["task"]), "score": s} for t, s in zip(eval_batch.trajectories, eval_batch.scores)]}


class Decisions:
    """Callbacks that record what the package decides at the end of each proposal."""

    def __init__(self, events):
        self.events, self.verdict, self.merge = events, None, False

    def on_iteration_start(self, event):
        self.verdict, self.merge = "refused", False

    def on_evaluation_skipped(self, event):
        self.verdict = "perfect"

    def on_merge_attempted(self, event):
        self.merge = True

    def on_merge_rejected(self, event):
        self.verdict = "rejected"

    def on_candidate_accepted(self, event):
        self.verdict = "accepted"

    def on_candidate_rejected(self, event):
        self.verdict = "rejected"

    def on_iteration_end(self, event):
        state = event["state"]
        fronts = state.program_at_pareto_front_valset
        self.events.append(
            {
                "decide": self.verdict,
                "merge": self.merge,
                "archive": [list(c.values()) for c in state.program_candidates],
                "parents": [[p for p in ps if p is not None] for ps in state.parent_program_for_candidate],
                "fronts": [sorted(fronts[i]) for i in sorted(fronts)],
                "next_prompt": list(state.named_predictor_id_to_update_next_for_program_candidate),
            }
        )


def compact(events):
    """Leaves out of each decision what the one before has."""
    last = {}
    for e in events:
        if "decide" in e:
            for key in ("archive", "parents", "fronts", "next_prompt"):
                if last.get(key) == e[key]:
                    del e[key]
                else:
                    last[key] = e[key]
    return events


def trace(seed, prompts, train, validation, minibatch, merge, proposals):
    import gepa

    names = NAMES[:prompts]
    world = World(seed, names, train, validation)
    events = []
    adapter = Adapter(world, events)
    failing = random.Random(2000 + seed)

    def reflect(_prompt):
        candidate, name = adapter.asked
        if reflect.fail:  # the package asks once more after a failure
            reflect.fail = False
            raise RuntimeError("no reply")
        if failing.random() < 0.05:
            reflect.fail = True
            events.append({"reflect": list(candidate.values()), "prompt": name, "reply": ""})
            raise RuntimeError("no reply")
        text = world.propose(name, candidate[name])
        events.append({"reflect": list(candidate.values()), "prompt": name, "reply": text})
        return f"```\n{text}\n```"

    reflect.fail = False
    Recorder.draws = []
    result = gepa.optimize(
        seed_candidate=world.seed,
        trainset=[t for t in world.tasks if t[0] == "train"],
        valset=[t for t in world.tasks if t[0] == "validation"],
        adapter=adapter,
        reflection_lm=reflect,
        reflection_minibatch_size=minibatch,
        use_merge=merge,
        stop_callbacks=lambda state: state.i >= proposals - 1,
        callbacks=[Decisions(events)],
        logger=types.SimpleNamespace(log=lambda *_: None),
        seed=seed,
    )
    return {
        "seed": seed,
        "prompts": [{"name": n, "text": t} for n, t in world.seed.items()],
        "train": train,
        "validation": validation,
        "minibatch": minibatch,
        "merge": merge,
        "draws": Recorder.draws,
        "events": compact(events),
        "best": list(result.best_candidate.values()),
    }


def main():
    restart_with_a_hash_seed()
    from importlib.metadata import version

    import gepa.api
    from gepa.core.state import GEPAState

    assert version("gepa") == "0.1.4", version("gepa")
    gepa.api.random = types.SimpleNamespace(Random=Recorder)
    original = GEPAState.get_pareto_front_mapping
    GEPAState.get_pareto_front_mapping = lambda self: {k: Ascending(v) for k, v in original(self).items()}
    cases = [trace(*case) for case in CASES]
    json.dump({"gepa": version("gepa"), "cases": cases}, sys.stdout, separators=(",", ":"))
    sys.stdout.write("\n")


main()
