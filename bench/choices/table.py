"""Prints what bench/choices/run has measured: table.py "SEED..." CHOICE..."""

import json
import math
import statistics
import sys

import choice

# Student's t for 95 %, by degrees of freedom.
T = [math.inf, 12.706, 4.303, 3.182, 2.776, 2.571, 2.447, 2.365, 2.306, 2.262]


def interval(values: list[float]) -> str:
    """The mean of seeds with its interval of 95 %, if there are two seeds or more."""
    mean = statistics.mean(values)
    if len(values) < 2:
        return f"{mean:+.3f}"
    half = T[len(values) - 1] * statistics.stdev(values) / math.sqrt(len(values))
    return f"{mean:+.3f} [{mean - half:+.3f}, {mean + half:+.3f}]"


def main(seeds: list[str], choices: list[str]) -> None:
    at = ("sampled", "greedy")
    means = {
        one: {how: [json.loads((choice.FOLDER / f"{choice.name(one, seed)}-{how}.json").read_text())["mean"] for seed in seeds] for how in at}
        for one in choices
    }
    print(f"| choice, {len(seeds)} seeds | temperature 1 | greedy | less the first, temperature 1 | greedy |\n| --- | --- | --- | --- | --- |")
    for one in choices:
        cells = [f"{statistics.mean(means[one][how]):.3f}" for how in at]
        cells += [interval([a - b for a, b in zip(means[one][how], means[choices[0]][how], strict=True)]) if one != choices[0] else "" for how in at]
        print(f"| {one} | {' | '.join(cells)} |")


if __name__ == "__main__":
    main(sys.argv[1].split(), sys.argv[2:])
