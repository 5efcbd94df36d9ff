"""Prints what bench/trl/run has measured: table.py PRECISION."""

import json
import statistics
import sys
from pathlib import Path

FOLDER = Path(".trl")


def main(precision: str) -> None:
    report = json.loads((FOLDER / f"fulgurite-{precision}.json").read_text())["time"]["steps"]
    theirs = [json.loads(line) for line in (FOLDER / f"trl-{precision}.jsonl").read_text().splitlines() if line.startswith("{")]
    theirs = [step for step in theirs if "seconds" in step]
    sides = {
        "fulgurite": ([step["seconds"] for step in report], int((FOLDER / f"fulgurite-{precision}.peak").read_text())),
        "trl": ([step["seconds"] for step in theirs], theirs[-1]["peak"]),
    }
    print(f"| {precision} | seconds of each step | mean | peak MB | gate, temperature 1 | gate, greedy |\n| --- | --- | ---: | ---: | ---: | ---: |")
    for side, (seconds, peak) in sides.items():
        means = [json.loads((FOLDER / f"{side}-{precision}-{at}.json").read_text())["mean"] for at in ("sampled", "greedy")]
        each = ", ".join(f"{s:.0f}" for s in seconds)
        print(f"| {side} | {each} | {statistics.mean(seconds):.1f} | {peak // 1024:,} | {means[0]:.3f} | {means[1]:.3f} |")


if __name__ == "__main__":
    main(sys.argv[1])
