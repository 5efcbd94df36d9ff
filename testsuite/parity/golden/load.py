"""Loads the directories that we wrote with transformers and compares what they compute
with what make.py wrote: python load.py WRITTEN FOLDER."""

import pathlib
import sys

import numpy
import torch
from safetensors.numpy import load_file
from transformers import AutoModelForCausalLM

written, folder = map(pathlib.Path, sys.argv[1:])
torch.set_num_threads(1)
for path in sorted(folder.glob("*.safetensors")):
    golden = load_file(path)
    model, loading = AutoModelForCausalLM.from_pretrained(
        written / path.stem, dtype=torch.float32, attn_implementation="eager", output_loading_info=True
    )
    wrong = {k: v for k, v in loading.items() if v}
    if wrong:
        sys.exit(f"{path.stem}: {wrong}")
    worst = 0
    for i in range(4):
        ids = torch.from_numpy(golden[f"rows.{i}"].astype(numpy.int64))[None]
        logprobs = torch.log_softmax(model(ids).logits[0], -1)[:-1].gather(1, ids[0, 1:, None])[:, 0]
        worst = max(worst, float(numpy.abs(logprobs.detach().numpy() - golden[f"logprobs.{i}"]).max()))
    print(f"{path.stem}: {type(model).__name__} loads, log-probabilities differ by at most {worst:.1e}")
    if worst > 1e-5:
        sys.exit("too much")
