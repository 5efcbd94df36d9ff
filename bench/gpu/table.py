"""Writes what was measured so far as a table: table.py RESULTS prints Markdown."""

import glob
import json
import os
import statistics
import sys

# What engine torch is to reach on a GPU.
RATIO = 0.95  # updates beside the plain loop, of each shape
OVERHEAD = 2.0  # seconds of a step outside of rollouts and update, in the median
MISMATCH = 0.02  # nats between sampler and trainer without a lag, in BF16, the mean of the worst step


def read(pattern):
    for path in sorted(glob.glob(os.path.join(sys.argv[1], pattern))):
        with open(path) as f:
            try:
                yield os.path.basename(path).removesuffix(".json"), json.load(f)
            except ValueError:
                yield os.path.basename(path).removesuffix(".json"), {"error": "no JSON"}


def number(x, form):
    return "–" if x is None else format(x, form)


def memory(x):
    return "–" if x is None else f"{x / 2**30:.1f}"


def ratios(rows):
    """How many times the tokens a second of the plain loop the engine's program trains, by shape and what is trained."""
    rate = {(r["shape"], r["what"], r["who"]): r["update_tokens_per_second"] for _, r in rows if "shape" in r}
    return {key[:2]: value / rate[key[0], key[1], "plain"] for key, value in rate.items() if key[2] == "ours" and (key[0], key[1], "plain") in rate}


def contract():
    for _, r in read("contract.json"):
        print(f"Contract on {r.get('fingerprint')}: {'passed' if r.get('passed') else 'BROKEN'}\n")
        print("| model | score, mean nats | max | gradient cosine | reply, mean nats | max | replies as native's | canary |")
        print("| --- | --- | --- | --- | --- | --- | --- | --- |")
        for m in r.get("models") or []:
            print(
                f"| {m['model']} | {m['score_mean']:.2g} | {m['score_max']:.2g} | {m['gradient_cosine']:.6f} | {m['reply_mean']:.2g} |"
                f" {m['reply_max']:.2g} | {m['same_replies']:.0%} | {m['canary'][:40]} |"
            )
        print()


def shapes(rows, ratio):
    if not rows:
        return
    print("| shape | trained | by | update, tokens/s | ÷ plain loop | MFU | peak GiB | decode, tokens/s | peak GiB | update to first token, s |")
    print("| --- | --- | --- | --- | --- | --- | --- | --- | --- | --- |")
    for name, r in rows:
        if "shape" not in r:
            print(f"| {name} | | | {r.get('error', 'failed')} | | | | | | |")
            continue
        ours = r["who"] == "ours"
        print(
            f"| {r['shape']} | {r['what']} | {'engine torch' if ours else 'transformers, PEFT'} | {r['update_tokens_per_second']:,.0f} |"
            f" {number(ratio.get((r['shape'], r['what'])) if ours else None, '.2f')} | {number(r['mfu'], '.1%')} | {memory(r['update_peak_bytes'])} |"
            f" {number(r.get('decode_tokens_per_second'), ',.0f')} | {memory(r.get('decode_peak_bytes'))} | {number(r.get('first_call_seconds'), '.2f')} |"
        )
    print()


def ranks():
    several = list(read("ranks-*.json"))
    if several:
        print("| shape | trained | GPUs | update, tokens/s | MFU | peak GiB of the first |\n| --- | --- | --- | --- | --- | --- |")
    for name, r in several:
        if "shape" not in r:
            print(f"| {name} | {r.get('error', 'failed')} | | | | |")
            continue
        print(
            f"| {r['shape']} | {r['what']} | {r['ranks']} | {r['update_tokens_per_second']:,.0f} | {number(r['mfu'], '.1%')} |"
            f" {memory(r['update_peak_bytes'])} |"
        )
    if several:
        print()


def goals(ratio):
    """What was measured beside what was to be reached. Figures of a CPU, or of tiny shapes, prove nothing of a GPU."""
    device = next((r.get("fingerprint", "") for _, r in read("contract.json")), "")
    run = next((r for _, r in read("learning.json")), {})
    overhead, mismatch = run.get("step_overhead_seconds"), run.get("mismatch")
    worst = min(ratio, key=ratio.get, default=None)
    lines = [
        ("update, tokens/s ÷ plain loop, the least of all shapes", f"≥ {RATIO}", ratio.get(worst), ".2f", lambda x: x >= RATIO),
        ("seconds of a step outside of rollouts and update, median", f"≤ {OVERHEAD}", statistics.median(overhead) if overhead else None, ".2f", lambda x: x <= OVERHEAD),
        ("mismatch without a lag, nats, worst step of the run", f"≤ {MISMATCH}", max(mismatch) if mismatch else None, ".2g", lambda x: x <= MISMATCH),
    ]
    if all(value is None for _, _, value, _, _ in lines):
        return
    where = "in BF16" if " bfloat16 " in device else "NOT in BF16, so that they say nothing of the goals"
    print(f"Goals, {where}:\n\n| goal | bound | measured | |\n| --- | --- | --- | --- |")
    for name, bound, value, form, met in lines:
        print(f"| {name} | {bound} | {number(value, form)} | {'not measured' if value is None else 'met' if met(value) else 'NOT MET'} |")
    first = run.get("first_call_seconds")
    if first:
        print(f"\nFrom the end of an update to the first call on record of its version: {statistics.median(first):.2f} s in the median, {max(first):.2f} at most.")
    print()


def main():
    rows = list(read("shape-*.json"))
    ratio = ratios(rows)
    goals(ratio)
    contract()
    shapes(rows, ratio)
    ranks()
    for name in ("learning", "killed"):
        for _, r in read(name + ".json"):
            print(f"{name}: {r.get('verdict', r)}\n")


main()
