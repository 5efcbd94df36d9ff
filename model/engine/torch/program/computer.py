"""What the program holds and the verbs that the engine asks for."""

import math
import os

import numpy
import torch

import causal
import choices
import decoding
import files
import learner
import ranks
import trunk
from connection import Refused
from versions import Unfit


class Computer:
    def __init__(self, link, device, threads, rank, count, products="auto"):
        if device == "auto":
            device = "cuda" if torch.cuda.is_available() else "cpu"
        if device.startswith("cuda") and not torch.cuda.is_available():
            raise Unfit(
                f"device {device} is asked for, but torch {torch.__version__} sees none: install a build of torch with CUDA"
                " and a driver that it supports, or take device cpu"
            )
        if count > 1 and device == "cuda":
            if torch.cuda.device_count() < count:
                raise Unfit(
                    f"{count} ranks are asked for, one for each GPU, but torch {torch.__version__} sees {torch.cuda.device_count()}:"
                    " lower FULGURITE_TORCH_RANKS, or let CUDA_VISIBLE_DEVICES name more"
                )
            device = f"cuda:{rank}"
        if threads > 0:
            torch.set_num_threads(threads)
        os.environ.setdefault("CUBLAS_WORKSPACE_CONFIG", ":4096:8")  # or its products are not repeatable
        torch.use_deterministic_algorithms(True, warn_only=True)
        torch.backends.cuda.matmul.allow_tf32 = False
        self.link, self.device = link, torch.device(device)
        # Products are in BF16 on a GPU; what is trained, its gradient and its moments are F32 everywhere.
        if products == "auto":
            products = "float32" if device == "cpu" else "bfloat16"
        self.dtype = {"float32": torch.float32, "bfloat16": torch.bfloat16}[products]
        # Decoders are in one process, with whole tensors.
        self.alone = ranks.Alone()
        self.ranks = self.alone if count == 1 else ranks.Ranks(rank, count, self.device, link.own)
        self.bases = {}  # trunk.Trunk by digest and ranks
        self.learners, self.decoders = {}, {}

    def describe(self):
        cpu = self.device.type == "cpu"
        name = torch.backends.cpu.get_cpu_capability() if cpu else torch.cuda.get_device_name(self.device)
        return {
            "device": str(self.device), "processor": name, "threads": torch.get_num_threads(),
            "dtype": str(self.dtype).removeprefix("torch."), "attention": trunk.ATTENTION, "pid": os.getpid(),
            "cuda": torch.version.cuda or "", "gpus": 0 if cpu else torch.cuda.device_count(),
            "memory": 0 if cpu else torch.cuda.get_device_properties(self.device).total_memory,
        }

    def answer(self, verb, handle, body, arrays):
        """The result of a request, and pairs of names and arrays that go with it."""
        if verb == "open":
            for held in self.learners.values():
                held.put_away()
            return self.open_files(handle, body) if "directory" in body else self.open(handle, body), ()
        if verb == "inspect":
            return causal.inspect(body["config"], body.get("lora")), ()
        held = self.learners.get(handle)
        if held is None:
            raise Refused(f"no model has handle {handle}")
        for other in self.learners.values():
            if other is not held:
                other.put_away()
        match verb:
            case "free":
                held.free()
                del self.learners[handle]
                self.decoders.pop(handle, None)
                if self.device.type == "cuda":
                    torch.cuda.empty_cache()
                return {}, ()
            case "decode":
                return {}, sampled(self.decoders[handle].decode(body, arrays))
            case "begin_update":
                held.begin()
                return {}, ()
            case "forward":
                first, second = held.forward(arrays, body["train"])
                return {}, (("logprobs", first), ("entropies", second))
            case "backward":
                held.backward(arrays)
                return {}, ()
            case "norm":
                norm = held.norm()
                return {"norm": norm if math.isfinite(norm) else None}, ()
            case "step":
                held.step(body)
                return {}, ()
            case "abort":
                held.abort()
                return {}, ()
            case "save":
                held.save(body)
                return {}, ()
        raise Refused(f"no verb {verb}")

    def open(self, handle, body):
        """Makes a model of files. A base that other models share is asked for if it is not here."""
        config = trunk.config(body["config"])
        lora, among = body.get("lora"), self.alone if body.get("decoder") else self.ranks
        base = body.get("base", ""), among, tuple(body.get("unused", ()))
        if base[0] and base not in self.bases:
            if not body.get("base_file"):
                return {"missing": True}
            self.forget_bases(among)  # before there is another, by the same rule in each rank
            made = trunk.Trunk(config, self.device, self.dtype, self.link.tick, among)
            made.load(trunk.read(body["base_file"]))
            made.freeze()
            made.unused = choices.ids(body.get("unused", ()), self.device)
            self.bases[base] = made
        held = learner.Learner(f"adapter{handle}", bool(body.get("critic")), self.device, self.dtype)
        try:
            if base[0]:
                held.adapt(self.bases[base], lora, trunk.read(body["weights"]))
            else:
                products = None if self.dtype == torch.float32 else self.dtype
                made = trunk.Trunk(config, self.device, torch.float32, self.link.tick, among, products, bool(body.get("frozen")))
                made.unused = choices.ids(body.get("unused", ()), self.device)
                held.whole(made, trunk.read(body["weights"]))
            if body.get("frozen"):
                held.freeze()
            elif not body.get("decoder"):
                held.moments(body.get("mean"), body.get("variance"), body.get("moments") == "int8")
        except BaseException:
            held.free()
            raise
        self.learners[handle] = held
        if body.get("decoder"):
            self.decoders[handle] = decoding.Decoder(held)
        return {"tokens": held.tokens()}

    def open_files(self, handle, body):
        """Makes a policy of any causal model, whose weights lie in directories as transformers and PEFT have them."""
        made = causal.config(body["config"])
        lora, digest = body.get("lora"), body.get("base", "")
        key = digest, self.alone, tuple(body.get("unused", ()))
        if digest and key not in self.bases:
            if not body.get("base_directory"):
                return {"missing": True}
            self.forget_bases(self.alone)
            base = causal.Causal(body["base_directory"], made, self.device, self.dtype, self.link.tick)
            base.freeze()
            base.unused = choices.ids(body.get("unused", ()), self.device)
            self.bases[key] = base
        held = files.FileLearner(f"adapter{handle}", False, self.device, self.dtype)
        try:
            if digest:
                held.adapter_of(self.bases[key], lora, body["directory"], body.get("seed", 0))
            else:
                whole = causal.Causal(body["directory"], made, self.device, torch.float32, self.link.tick)
                whole.unused = choices.ids(body.get("unused", ()), self.device)
                held.all_of(whole)
            if not body.get("decoder"):
                held.moments(body["directory"])
        except BaseException:
            held.free()
            raise
        self.learners[handle] = held
        if body.get("decoder"):
            self.decoders[handle] = decoding.Decoder(held)
        result = {"tokens": held.tokens()}
        if digest:
            result["targets"] = causal.chosen(held.trunk.names, lora["targets"])
        return result

    def forget_bases(self, among):
        """Forgets bases, spread like the one that is to come, that no model uses."""
        used = {held.trunk for held in self.learners.values()}
        self.bases = {key: t for key, t in self.bases.items() if t in used or key[1] is not among}


def sampled(drawn):
    """Arrays of what a decoder sampled."""
    columns = zip(*drawn) if drawn else ((),) * 4
    kinds = (("ids", "i4"), ("tokens", "i4"), ("logprobs", "f4"), ("only", "u1"))
    return tuple((name, numpy.array(column, dtype=kind)) for (name, kind), column in zip(kinds, columns))
