"""What native.go measures, with PyTorch: torch_engine.py MODEL WORK THREADS RANK prints a line of JSON."""

import json
import sys
import time

import torch
from transformers import AutoModelForCausalLM

base, work, threads, rank = sys.argv[1], sys.argv[2], int(sys.argv[3]), int(sys.argv[4])
torch.set_num_threads(threads)
model = AutoModelForCausalLM.from_pretrained(base, dtype=torch.float32)
vocabulary = model.config.vocab_size
ROWS, TOKENS, PROMPT, REPLY = 16, 128, 64, 64


def tokens(i, n):
    return [(i * 7919 + j * 104729) % vocabulary for j in range(n)]


def rate(n, f):
    f()
    times, began, before = 0, time.time(), time.process_time()
    while times == 0 or time.time() - began < 5:
        f()
        times += 1
    return n * times / (time.time() - began), n * times / (time.process_time() - before)


def logprobs(x):
    return torch.log_softmax(model(x).logits[:, :-1], -1).gather(-1, x[:, 1:, None])


def score():
    with torch.no_grad():
        logprobs(batch)


def update():
    optimizer.zero_grad()
    (-logprobs(batch).mean()).backward()
    torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
    optimizer.step()


def decode():
    with torch.no_grad():
        model.generate(prompts, attention_mask=torch.ones_like(prompts), do_sample=True, min_new_tokens=REPLY, max_new_tokens=REPLY, top_k=0, pad_token_id=0)


if work.startswith("decode "):
    n = int(work.split()[1])
    prompts = torch.tensor([tokens(i, PROMPT) for i in range(n)])
    result, processor = rate(n * REPLY, decode)
else:
    batch = torch.tensor([tokens(i, TOKENS) for i in range(ROWS)])
    if work == "adapter":
        from peft import LoraConfig, get_peft_model

        model = get_peft_model(model, LoraConfig(r=rank, lora_alpha=2 * rank, target_modules="all-linear"))
    optimizer = torch.optim.AdamW([p for p in model.parameters() if p.requires_grad], lr=1e-5)
    result, processor = rate(ROWS * TOKENS, score if work == "score" else update)
with open("/proc/self/status") as file:
    peak = next(int(line.split()[1]) * 1024 for line in file if line.startswith("VmHWM"))
print(json.dumps({"tokens": result, "processor": processor, "peak": peak}))
