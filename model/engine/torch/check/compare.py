"""Holds what the GPU script measured with tiny shapes to what it promises: compare.py RESULTS SECONDS.

Every stage has a result without an error, the contract holds, and the run that was killed came to the same ledger as the
one that was not.
"""

import json
import os
import sys

results, seconds = sys.argv[1], int(sys.argv[2])
STAGES = [
    "contract", "shape-tiny-full-ours", "shape-tiny-full-plain", "shape-tiny-untied-lora-ours", "shape-tiny-untied-lora-plain", "learning",
    "killed", "ranks-tiny-full",
]
found = {}
for name in STAGES:
    try:
        with open(os.path.join(results, name + ".json")) as f:
            found[name] = json.load(f)
    except (OSError, ValueError) as e:
        sys.exit(f"stage {name} left no result: {e}")
for name, result in found.items():
    if "error" in result:
        sys.exit(f"stage {name}: {result['error']}")
if not found["contract"]["passed"]:
    sys.exit(f"the contract is broken: {found['contract']}")
with open(os.path.join(results, "table.md")) as f:
    table = f.read()
for part in ("÷ plain loop", "| goal | bound | measured | |", "outside of rollouts and update", "the first call on record"):
    if part not in table:
        sys.exit(f"the table lacks {part!r}")
if "not measured" in table or "error" in table.lower():
    sys.exit("the table lacks a figure")

whole, killed = found["learning"], found["killed"]
if whole["prompts"] != killed["prompts"] or not killed["each_prompt_once"]:
    sys.exit(f"the ledgers differ: {whole['prompts']} and {killed['prompts']}")
if any(x < 0 for x in whole["step_overhead_seconds"] + whole["first_call_seconds"]):
    sys.exit(f"time runs backwards: {whole['step_overhead_seconds']}, {whole['first_call_seconds']}")
if max(whole["mismatch"]) > 1e-3:
    sys.exit(f"sampler and trainer are {whole['mismatch']} nats apart, in float32")
same = "equal to the bit" if whole["weights"] == killed["weights"] else "not equal to the bit"
print(
    f"torch: passed in {seconds} s: {killed['prompts']['trained']} prompts trained once each in {killed['steps']} steps, program and worker"
    f" killed in mid-step, the program in mid-reply too, {killed['passes_again']} passes made again, weights {same}"
)
