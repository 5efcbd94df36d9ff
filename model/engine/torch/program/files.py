"""Policies of any causal model: their weights come and go as files that nobody else reads."""

import os

import safetensors.torch

import causal
from learner import Learner
from moments import rows

WEIGHTS, ADAPTER, OPTIMIZER = "model.safetensors", "adapter_model.safetensors", "optimizer.safetensors"
MEAN, VARIANCE = "mean.", "variance."


class FileLearner(Learner):
    """A Learner whose trunk is a Causal. An adapter's tensors have PEFT's names, those of a whole model its parameters'."""

    def all_of(self, trunk):
        """Trains all weights."""
        self.trunk, self.trained = trunk, trunk.parameters()

    def adapter_of(self, trunk, lora, directory, seed):
        """Trains an adapter of a base that others may share: that of directory, or a new one."""
        self.trunk, self.adapted = trunk, True
        tensors = safetensors.torch.load_file(os.path.join(directory, ADAPTER)) if directory else None
        self.trained = trunk.adapt(self.name, lora, tensors, seed)
        if tensors is not None and (odd := sorted(self.trained.keys() ^ tensors.keys())):
            raise causal.Refused(f"the adapter's tensors are not those of its layers: {', '.join(odd[:4])}")

    def moments(self, directory):
        path = os.path.join(directory or "", OPTIMIZER)
        read = safetensors.torch.load_file(path) if directory and os.path.exists(path) else {}
        both = super()
        both.moments(None, None, False)
        for prefix, to in ((MEAN, self.mean), (VARIANCE, self.variance)):
            if not read:
                continue
            own = {name.removeprefix(prefix): t for name, t in read.items() if name.startswith(prefix)}
            odd = sorted(own.keys() ^ to.held.keys())
            odd += [name for name in to.held if name in own and own[name].shape != self.trained[name].shape]
            if odd:
                raise causal.Refused(f"{OPTIMIZER} and the weights differ in tensors: {', '.join(odd[:4])}")
            for name, t in to.held.items():
                t.copy_(rows(own[name]))

    def save(self, body):
        """Writes the weights, and the moments if they are asked for, into a directory."""
        directory = body["directory"]
        if self.adapted:
            held = {name: t.detach().to("cpu").contiguous() for name, t in self.trained.items()}
            safetensors.torch.save_file(held, os.path.join(directory, ADAPTER), metadata={"format": "pt"})
        else:
            self.trunk.write(directory)
        if body.get("optimizer"):
            both = (MEAN, self.mean), (VARIANCE, self.variance)
            held = {prefix + name: of.whole(name, p).to("cpu").contiguous() for prefix, of in both for name, p in self.trained.items()}
            with causal.patiently(self.trunk.tick):
                safetensors.torch.save_file(held, os.path.join(directory, OPTIMIZER), metadata={"format": "pt"})
