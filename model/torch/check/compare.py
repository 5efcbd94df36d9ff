"""Compares the two runs of model/torch/check/run: compare.py FOLDER SECONDS PASSES LEAST SAMPLED KILLED."""

import json
import os
import sys

folder, seconds, passes, least, sampled, killed_at = sys.argv[1], *map(int, sys.argv[2:])


def read(name, kind):
    with open(os.path.join(folder, f"{name}.{kind}")) as f:
        return json.load(f)


def ledger(report):
    """What became of every prompt."""
    return {key: report["prompts"][key] for key in ("issued", "trained", "skipped", "duplicated", "unexpected", "under_way")}


def weights(versions):
    return [v["weights"] for v in versions]


whole, killed = read("whole", "report"), read("killed", "report")
same = weights(read("whole", "versions")) == weights(read("killed", "versions"))
if ledger(whole) != ledger(killed) or killed["prompts"]["duplicated"] or killed["prompts"]["trained"] != killed["prompts"]["issued"]:
    sys.exit(f"the ledgers differ: {ledger(whole)} and {ledger(killed)}")
if passes < least + 2:
    sys.exit(f"{passes} backward passes, but two updates were cut off and made again, so that there are at least {least + 2}")
if sampled <= killed_at:
    sys.exit(f"{sampled} tokens of replies, but the program was to be killed at number {killed_at}")
print(
    f"torch: passed in {seconds} s: {killed['prompts']['trained']} prompts trained once each in {killed['steps']} steps, program and worker"
    f" killed in mid-step, the program in mid-reply too, {passes - least} passes made again, weights {'equal to the bit' if same else 'not equal to the bit'}"
)
