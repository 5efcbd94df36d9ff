"""Prints what bench/trl/run has measured: table.py PRECISION. Rewards have their 95 % interval over the questions."""

import json
import statistics
import sys
from pathlib import Path

FOLDER = Path(".trl")


def main(precision: str) -> None:
    report = json.loads((FOLDER / f"fulgurite-{precision}.json").read_text())["time"]["steps"]
    theirs = [json.loads(line) for line in (FOLDER / f"trl-{precision}.jsonl").read_text().splitlines() if line.startswith('{"seconds"')]
    sides = {
        "fulgurite": ([step["seconds"] for step in report], int((FOLDER / f"fulgurite-{precision}.peak").read_text())),
        "trl": ([step["seconds"] for step in theirs], theirs[-1]["peak"]),
    }
    print(f"| {precision} | seconds of each step | mean | peak MB | gate, temperature 1 | gate, greedy |\n| --- | --- | ---: | ---: | ---: | ---: |")
    for side, (seconds, peak) in sides.items():
        scores = [json.loads((FOLDER / f"{side}-{precision}-{at}.json").read_text()) for at in ("sampled", "greedy")]
        rewards = " | ".join(f"{s['mean']:.3f} ± {1.96 * s['std_error']:.3f}" for s in scores)
        each = ", ".join(f"{s:.0f}" for s in seconds)
        print(f"| {side} | {each} | {statistics.mean(seconds):.1f} | {peak // 1024:,} | {rewards} |")


if __name__ == "__main__":
    main(sys.argv[1])
