"""A policy or a critic that is trained, with AdamW."""

import safetensors.torch
import torch

from connection import Refused
from moments import Moments, portions, rows
from offload import Offload
from trunk import LEAST

TYPES = {"f4": torch.float32, "i4": torch.int32, "u1": torch.uint8}  # of arrays in frames
MOST_RANKS = 64
SCORE_WEIGHT, SCORE_BIAS = "score.weight", "score.bias"  # the value head of a critic


def numbers(kind, data):
    return torch.frombuffer(data, dtype=TYPES[kind]) if len(data) else torch.empty(0, dtype=TYPES[kind])


def any_of(array):
    """Whether a number of an array of a frame is not zero."""
    kind, _, data = array
    return bool(numbers(kind, data).any())


class Learner:
    """The numbers that are trained lie in trained, by their names in files; they, their gradients and their moments
    are F32. An update goes begin, then forward and backward for each part of a batch, norm, step; abort ends it at any
    point with nothing changed."""

    def __init__(self, name, critic, device, dtype):
        self.name, self.critic, self.device, self.dtype = name, critic, device, dtype
        self.trunk, self.adapted = None, False
        self.trained, self.mean, self.variance = {}, Moments(True, device), Moments(False, device)
        self.offload = None
        self.outputs = None  # of the forward pass that waits for its gradient
        self.updating, self.normed = False, False

    def whole(self, trunk, tensors):
        """Trains all weights."""
        self.trunk = trunk
        rest = self.take_head(tensors)
        self.trained = {**trunk.load(tensors), **rest}

    def freeze(self):
        """Has the model be one that is scored alone, and leave the device while others are used."""
        if not self.adapted:
            self.trunk.freeze()
            if self.trunk.ranks.count == 1:  # ranks read their rows from the CPU's memory as they use them
                self.offload = Offload(self.trunk.module, self.device)

    def put_away(self):
        if self.offload:
            self.offload.put_away()

    def adapt(self, trunk, lora, tensors):
        """Trains an adapter of a base that others may share."""
        self.trunk, self.adapted = trunk, True
        rest = self.take_head(tensors)
        self.trained = {**trunk.adapt(self.name, lora, tensors), **rest}
        odd = sorted(self.trained.keys() ^ (tensors.keys() | rest.keys()))
        if odd:
            raise Refused(f"the adapter's tensors are not those of its layers: {', '.join(odd[:4])}")

    def take_head(self, tensors):
        if not self.critic:
            return {}
        return {
            name: torch.nn.Parameter(tensors.pop(name).to(self.device, torch.float32, copy=True))
            for name in (SCORE_WEIGHT, SCORE_BIAS)
        }

    def moments(self, mean, variance, eight):
        """Reads the moments from files, or begins with zeros; in 8 bits if eight is true."""
        for path, to in ((mean, self.mean), (variance, self.variance)):
            read = safetensors.torch.load_file(path) if path else {}
            for name, p in self.trained.items():
                own, values = self.trunk.ranks.own(p), read.get(name)
                to.begin(name, own, p, eight, None if values is None else self.trunk.ranks.rows(values, p))
                self.trunk.tick()

    def tokens(self):
        """The most tokens of a pass that the engine should ask for, 0 if it is free to choose."""
        return self.trunk.room if self.trunk.room >= LEAST else 0

    def free(self):
        if self.adapted:
            self.trunk.remove(self.name)
        self.abort()

    def begin(self):
        self.abort()
        self.updating = True

    def abort(self):
        self.outputs, self.updating, self.normed = None, False, False
        for p in self.trained.values():
            p.grad = None

    def forward(self, arrays, train):
        """Log-probabilities and entropies, or values and zeros, of the choices of rows, one row after the other."""
        if train and not self.updating:
            raise Refused("forward of an update that has not begun")
        self.activate()
        with torch.set_grad_enabled(train):
            outputs = self.compute(arrays, train)
        self.outputs = outputs if train else None
        if not train:
            self.trunk.ranks.reshard(self.trunk.module)
        return tuple(x.detach().float().cpu().numpy() for x in outputs)

    def activate(self):
        if self.offload:
            self.offload.bring()
        if self.adapted:
            self.trunk.activate(self.name)

    def compute(self, arrays, train):
        tokens = self.tensor(arrays["tokens"]).long()  # [B, S], padding last
        lengths = self.tensor(arrays["lengths"]).long()
        mixed = self.dtype != torch.float32 and not self.adapted
        with torch.autocast(self.device.type, self.dtype, enabled=mixed):
            hidden = self.trunk.hidden(tokens[:, :-1], train)
        chosen = torch.arange(tokens.shape[1] - 1, device=self.device)[None] < lengths[:, None] - 1
        hidden = hidden[chosen]
        if self.critic:
            values = hidden.float() @ self.trained[SCORE_WEIGHT][0] + self.trained[SCORE_BIAS]
            return values, torch.zeros_like(values)
        return self.trunk.choices(
            hidden, tokens[:, 1:][chosen], self.tensor(arrays["scale"]),
            self.tensor(arrays["bits"]), self.tensor(arrays["mask"]).long(), self.dtype,
        )

    def tensor(self, array):
        """An array of a frame on the device."""
        kind, shape, data = array
        return numbers(kind, data).reshape(shape).to(self.device)

    def backward(self, arrays):
        """Adds the gradient of Σ by_logprob·logprob + by_entropy·entropy of the rows of the last forward."""
        if self.outputs is None:
            raise Refused("backward without a forward of the same update")
        outputs, self.outputs = self.outputs, None
        self.activate()
        names = ["by_logprob"]
        if not self.critic and any_of(arrays["by_entropy"]):
            names.append("by_entropy")
        outputs, gradients = outputs[: len(names)], [self.tensor(arrays[name]) for name in names]
        torch.autograd.backward(outputs, gradients)
        self.normed = False

    def norm(self):
        if not self.updating or self.outputs is not None:
            raise Refused("norm in the middle of an update")
        if not self.normed:
            for p in self.trained.values():
                p.grad = torch.zeros_like(p) if p.grad is None else p.grad
            self.trunk.ranks.sum(list(self.trained.values()))
        self.normed = True
        return self.trunk.ranks.length(list(self.trained.values()))

    @torch.no_grad()
    def step(self, o):
        """One update of AdamW (arXiv:1711.05101). Weight decay spares tensors of rank 1."""
        if not self.normed:
            raise Refused("step before norm")
        ranks, noise = self.trunk.ranks, torch.Generator(self.device)
        noise.manual_seed(o["update"] * MOST_RANKS + ranks.rank)
        for name, p in self.trained.items():
            weights, gradient = rows(ranks.own(p)), rows(ranks.own(p.grad))
            for part in portions(weights):
                g, w = gradient[part] * o["scale"], weights[part]
                m, v = self.mean.read(name, part), self.variance.read(name, part)
                m.mul_(o["beta1"]).add_(g, alpha=o["rest1"])
                v.mul_(o["beta2"]).add_(g * g, alpha=o["rest2"])
                root = (v * o["correct2"]).sqrt_().add_(o["epsilon"])
                change = (m * o["correct1"]).div_(root)
                if p.dim() > 1:
                    change.add_(w, alpha=o["decay"])
                w.sub_(change, alpha=o["rate"])
                self.mean.write(name, part, m, noise)
                self.variance.write(name, part, v, noise)
            self.trunk.tick()
        self.abort()

    def save(self, paths):
        """Writes what this rank holds of the weights, and of the moments if they are asked for, to files; none of nothing."""
        ranks = self.trunk.ranks
        held = {name: ranks.own(p) for name, p in self.trained.items() if ranks.holds(p)}
        for kind, moment in (("weights", None), ("mean", self.mean), ("variance", self.variance)):
            if paths.get(kind) and held:
                tensors = {name: (moment.whole(name, own) if moment else own).to("cpu").contiguous() for name, own in held.items()}
                safetensors.torch.save_file(tensors, f"{paths[kind]}.{ranks.rank}")
                self.trunk.tick()
