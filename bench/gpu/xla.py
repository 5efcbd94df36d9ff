"""Says whether XLA could be used here in place of PyTorch's own kernels. Prints a line of JSON."""

import importlib.util
import json

import torch

found = {name: importlib.util.find_spec(name) is not None for name in ("torch_xla", "jax", "jaxlib", "jax_plugins")}
device = torch.cuda.get_device_name() if torch.cuda.is_available() else "cpu"
if found["torch_xla"]:
    import torch_xla

    device_of_xla = str(torch_xla.device())
    verdict = f"torch_xla {torch_xla.__version__} is installed and has {device_of_xla}; the engine torch does not use it"
elif found["jaxlib"]:
    verdict = "jaxlib is installed, torch_xla is not: the engine gomlx can load its plugin when built with cgo and -tags xla, which this archive's programs are not"
else:
    verdict = "neither torch_xla nor a plugin of PJRT is installed: not usable without a network"
print(json.dumps({"device": device, "installed": found, "verdict": "XLA: " + verdict}))
