"""A causal model of any type that transformers has, from a directory with config.json and weights in safetensors.

Trunk computes the architectures that the other engines know, too, and takes their tensors by name. Here transformers
reads and writes files by its own rules, and the model's own code makes logits of hidden states.
"""

import contextlib
import threading

import safetensors.torch
import torch
import transformers
from peft import LoraConfig, inject_adapter_in_model
from peft.tuners.tuners_utils import BaseTunerLayer
from torch.utils.checkpoint import checkpoint
from transformers import CONFIG_MAPPING, AutoModelForCausalLM
from transformers.models.auto.modeling_auto import MODEL_FOR_CAUSAL_LM_MAPPING_NAMES

from cache import Cache
from choices import NONE, entropy, masked, parts, taken
from connection import Refused
from ranks import Alone
from trunk import room

transformers.utils.logging.disable_progress_bar()
USUAL = ["q_proj", "k_proj", "v_proj", "o_proj", "gate_proj", "up_proj", "down_proj"]  # what a spec without targets has
PREFIX = "base_model.model."  # of an adapter's tensors in PEFT's files
PATIENCE = 1800  # seconds that transformers may take to read or write files, which shows no progress itself


def config(text):
    kind = text.get("model_type")
    if kind not in CONFIG_MAPPING:
        raise Refused(f"model_type {kind!r}: transformers {transformers.__version__} has no such model")
    if kind not in MODEL_FOR_CAUSAL_LM_MAPPING_NAMES:
        raise Refused(f"model_type {kind!r}: transformers {transformers.__version__} has no causal language model of this type")
    made = CONFIG_MAPPING[kind].from_dict(text)
    for name, value in vars(made).items():  # what makes a forward pass random
        if ("dropout" in name or "pdrop" in name or name in ("layerdrop", "router_jitter_noise")) and isinstance(value, float):
            setattr(made, name, 0.0)
    made.use_cache = False
    if getattr(made, "output_router_logits", None):
        made.output_router_logits = False
    return made


def attention(made):
    """The kind of attention: what transformers takes by itself, but where that does not compute all of it."""
    return "eager" if getattr(made, "attn_logit_softcapping", None) else None


@contextlib.contextmanager
def patiently(tick):
    """Says that the request is being worked on while transformers reads or writes, for at most PATIENCE seconds."""
    done = threading.Event()

    def wait():
        for _ in range(PATIENCE):
            if done.wait(1):
                return
            tick()

    thread = threading.Thread(target=wait, daemon=True)
    thread.start()
    try:
        yield
    finally:
        done.set()
        thread.join()


def inspect(text, lora):
    """What a config.json says of a model, without its weights: how many numbers it has, and those of an adapter."""
    with torch.device("meta"):
        made = AutoModelForCausalLM.from_config(config(text), trust_remote_code=False)
    separate(made)
    total, adapted = sum(p.numel() for p in made.parameters()), 0
    if not lora:
        return {"parameters": total, "trained": total}
    targets = chosen(linear(made), lora["targets"])
    for name, m in made.named_modules():
        if isinstance(m, torch.nn.Linear) and m is not made.get_output_embeddings() and name.rsplit(".", 1)[-1] in targets:
            adapted += lora["rank"] * (m.in_features + m.out_features)
    return {"parameters": total, "trained": adapted, "targets": targets}


def separate(module):
    """The part of a model that makes hidden states."""
    trunk = module.base_model
    if trunk is module or module.get_output_embeddings() is None:
        raise Refused(f"model_type {module.config.model_type!r}: its class has no output layer apart from the rest")
    return trunk


def linear(module):
    """The full names of the linear layers that an adapter can adapt: all but the output layer."""
    head = module.get_output_embeddings()
    return [name for name, m in module.named_modules() if isinstance(m, torch.nn.Linear) and m is not head]


def endings(names):
    return {name.rsplit(".", 1)[-1] for name in names}


def chosen(names, targets):
    """The endings of the names of layers that targets stand for. A spec without targets has the usual ones, which stand
    for all linear layers where a model lacks some of them."""
    there = endings(names)
    if not there:
        raise Refused("model.lora: the model has no linear layer that an adapter could adapt: leave model.lora out")
    if set(targets) == set(USUAL) and not there.issuperset(USUAL):
        return sorted(there)
    absent = sorted(set(targets) - there)
    if absent:
        raise Refused(f"model.lora.targets: no linear layer is called {', '.join(absent)}: there are {', '.join(sorted(there))}")
    return sorted(targets)


class Given:
    """What a trunk returns, with the hidden states alone."""

    def __init__(self, hidden):
        self.last_hidden_state = hidden

    def __getattr__(self, name):
        return None

    def __getitem__(self, at):
        return (self.last_hidden_state,)[at]


class Passing(torch.nn.Module):
    """Stands where a model has its trunk, and returns hidden states that are known already."""

    hidden = None

    def forward(self, *_, **__):
        return Given(self.hidden)


class Causal:
    def __init__(self, directory, made, device, dtype, tick):
        self.config, self.device, self.dtype, self.tick, self.ranks = made, device, dtype, tick, Alone()
        place = {"device_map": {"": str(device)}} if device.type != "cpu" else {}
        with patiently(tick):
            self.module, report = AutoModelForCausalLM.from_pretrained(
                directory, config=made, dtype=dtype, attn_implementation=attention(made), trust_remote_code=False,
                local_files_only=True, use_safetensors=True, output_loading_info=True, **place,
            )
        odd = sorted(str(n) for kind in ("missing_keys", "mismatched_keys") for n in report[kind])
        if odd:
            raise Refused(f"the weights and {made.model_type} of transformers differ in tensors: {', '.join(odd[:4])}")
        self.trunk = separate(self.module)
        self.room = room(device, dtype, getattr(made, "num_hidden_layers", 1), getattr(made, "hidden_size", 1))
        self.names = linear(self.module)
        for m in self.module.modules():
            if isinstance(m, torch.nn.Dropout):
                m.p = 0.0
            if isinstance(m, torch.nn.ModuleList) and len(m) == getattr(made, "num_hidden_layers", 0):
                for layer in m:
                    layer.register_forward_hook(self.passed)
        self.passing, self.head = Passing(), self.module.__class__.__new__(self.module.__class__)
        self.head.__dict__ = dict(self.module.__dict__)
        self.head._modules = {**self.module._modules, self.module.base_model_prefix: self.passing}
        self.unused = None  # ids without a token, which are never chosen
        self.active = None  # the name of the adapter that takes part; None is not known
        self.module.eval()
        self.check()
        self.cached = self.fits()

    def passed(self, module, inputs, output):
        """Says that a layer is done, and has the backward pass say so."""
        self.tick()
        hidden = output[0] if isinstance(output, tuple) else output
        if hidden.requires_grad:
            hidden.register_hook(lambda gradient: self.tick())

    @torch.no_grad()
    def check(self):
        """Refuses a model whose logits are not a function of its last hidden states alone."""
        tokens = torch.arange(6, device=self.device)[None] % self.config.vocab_size
        whole = self.module(input_ids=tokens, use_cache=False).logits
        apart = self.logits(self.hidden(tokens, False)[0])
        for name, p in self.module.named_parameters():
            if not torch.isfinite(p).all():
                raise Refused(f"tensor {name} holds a number that is not finite")
        if not torch.allclose(whole[0].float(), apart.float(), rtol=1e-3, atol=1e-3 * whole.float().abs().max().item()):
            raise Refused(f"model_type {self.config.model_type!r}: its logits are not made of the last hidden states alone")

    @torch.no_grad()
    def fits(self):
        """Whether a cache of keys and values, by slots, gives the hidden states of a whole pass. It does not where layers
        keep something else; then each token is sampled by a pass over all that is before it."""
        try:
            rows = torch.arange(14, device=self.device).reshape(2, 7) % self.config.vocab_size
            short = 5
            cache = Cache()
            cache.reserve(2, 7)
            for slot, length in ((0, 6), (1, short - 1)):
                at = torch.arange(length, device=self.device)
                cache.at(slot, 1, 0, length)
                self.extend(rows[slot : slot + 1, :length], at[None], (at[None] <= at[:, None])[None, None], cache)
            at = torch.tensor([6, short - 1], device=self.device)
            cache.among(at, 7)
            mask = (torch.arange(7, device=self.device)[None] <= at[:, None])[:, None, None]
            last = self.extend(torch.stack([rows[0, 6:7], rows[1, short - 1 : short]]), at[:, None], mask, cache)[:, 0].float()
        except Exception:  # whatever the model's code makes of a cache that it does not know
            return False
        whole = torch.stack([self.hidden(rows[:1], False)[0, -1], self.hidden(rows[1:, :short], False)[0, -1]]).float()
        near = (1e-4 if self.dtype == torch.float32 else 0.1) * whole.abs().max().item()
        return bool(torch.isfinite(last).all()) and (last - whole).abs().max().item() <= near

    def freeze(self):
        self.module.requires_grad_(False)

    def parameters(self):
        """All weights by name, shared ones once."""
        return dict(self.module.named_parameters())

    def write(self, directory):
        """Writes the weights as transformers does, into one file."""
        with patiently(self.tick):
            self.module.save_pretrained(directory, max_shard_size="1000000GB")

    def adapt(self, name, lora, tensors, seed):
        """Adds an adapter, of tensors or a new one that changes nothing yet, and gives its parameters by PEFT's names."""
        targets = set(chosen(self.names, lora["targets"]))
        layers = [n for n in self.names if n.rsplit(".", 1)[-1] in targets]
        self.active = None
        shape = LoraConfig(r=lora["rank"], lora_alpha=lora["alpha"], target_modules=layers, lora_dropout=0.0, bias="none")
        try:
            inject_adapter_in_model(shape, self.module, adapter_name=name)
        except ValueError as e:
            raise Refused(f"model.lora.targets: {e}") from e
        own = {}
        random = torch.Generator().manual_seed(seed)
        for module_name, module in self.module.named_modules():
            if not isinstance(module, BaseTunerLayer) or name not in module.lora_A:
                continue
            for part, layer in (("lora_A", module.lora_A[name]), ("lora_B", module.lora_B[name])):
                key = f"{PREFIX}{module_name}.{part}.weight"
                if tensors is None:
                    made = torch.zeros(layer.weight.shape)
                    if part == "lora_A":  # as PEFT does: He et al., 2015, with a = √5
                        made.uniform_(-1, 1, generator=random).div_(layer.weight.shape[1] ** 0.5)
                elif key not in tensors or tensors[key].shape != layer.weight.shape:
                    raise Refused(f"tensor {key} is absent or has another shape than {list(layer.weight.shape)}")
                else:
                    made = tensors[key]
                layer.weight.data = made.to(self.device, torch.float32, copy=True)
                own[key] = layer.weight
        return own

    def activate(self, name):
        """Has the adapter of that name, and no other, take part in what is computed and trained."""
        if self.active == name:
            return
        for module in self.module.modules():
            if isinstance(module, BaseTunerLayer):
                module.set_adapter([name])
        self.active = name

    def remove(self, name):
        self.active = None
        for module in self.module.modules():
            if isinstance(module, BaseTunerLayer) and name in module.lora_A:
                module.delete_adapter(name)

    # What is computed.

    def hidden(self, tokens, train):
        """The last hidden states [B, S, D] of tokens [B, S]. Padding comes last, so that no token sees it."""
        recompute = train and tokens.numel() > self.room and self.module.supports_gradient_checkpointing
        if recompute and not self.module.is_gradient_checkpointing:
            self.module.gradient_checkpointing_enable({"use_reentrant": False})
        self.module.train(recompute)  # nothing is dropped: this decides alone whether layers are computed again
        return self.trunk(input_ids=tokens, use_cache=False).last_hidden_state

    def extend(self, tokens, positions, mask, cache):
        """The last hidden states of tokens [B, S] at positions [B, S] that see what mask [B, 1, S, T] allows of a cache's."""
        self.module.train(False)
        return self.trunk(
            input_ids=tokens, position_ids=positions, attention_mask=self.masks(positions, mask), past_key_values=cache, use_cache=True
        ).last_hidden_state

    def masks(self, positions, mask):
        """The mask as the layers of this model want it: those with a window see the last positions alone."""
        kinds = set(getattr(self.config, "layer_types", None) or ())
        window = getattr(self.config, "sliding_window", None)
        if not kinds:
            used = window is not None and getattr(self.config, "use_sliding_window", True)
            kinds = {"sliding_attention" if used else "full_attention"}
        if not kinds <= {"full_attention", "sliding_attention"}:
            raise Refused(f"layers of the kinds {', '.join(sorted(kinds))}")
        made = {}
        for kind in kinds:
            allowed = mask
            if kind == "sliding_attention":
                place = torch.arange(mask.shape[-1], device=mask.device)
                allowed = mask & (place > positions[:, None, :, None] - window)
            if self.module.config._attn_implementation == "eager":
                allowed = torch.zeros(allowed.shape, dtype=self.dtype, device=mask.device).masked_fill(~allowed, torch.finfo(self.dtype).min)
            made[kind] = allowed
        return made if len(made) > 1 else next(iter(made.values()))

    def mixed(self, dtype):
        return torch.autocast(self.device.type, dtype, enabled=dtype != self.dtype)

    def logits(self, hidden):
        """The logits [n, V] of hidden states [n, D], as the model's own code makes them."""
        self.passing.hidden = hidden[None]
        try:
            return self.head(input_ids=torch.zeros((1, len(hidden)), dtype=torch.long, device=self.device), use_cache=False).logits[0]
        finally:
            self.passing.hidden = None

    def choices(self, hidden, target, scale, bits, mask, dtype):
        """Log-probabilities and entropies, as Choices has them."""

        def some(hidden, target, scale, mask):
            with self.mixed(dtype):
                z = self.logits(hidden)
            log = torch.log_softmax(masked(z.float() * scale[:, None], bits, mask, self.unused), -1)
            log = log.masked_fill(log == float("-inf"), NONE)  # by a mask, or by the model's own code
            return taken(log, target), entropy(log)

        made = []
        for part in parts(hidden, self.config.vocab_size):
            given = hidden[part], target[part], scale[part], mask[part]
            made.append(checkpoint(some, *given, use_reentrant=False) if torch.is_grad_enabled() else some(*given))
        return tuple(torch.cat(column) for column in zip(*made))

    def choosing(self, hidden, scale, bits, mask, dtype):
        """The scaled logits that tokens are chosen by, in parts of positions."""
        for part in parts(hidden, self.config.vocab_size):
            with self.mixed(dtype):
                z = self.logits(hidden[part])
            yield part, masked(z.float() * scale[part, None], bits, mask[part], self.unused)

