"""Prints what a training was worth, beside what the model can do without it: the table of `make sql` and `make math`.

    table.py [--writer] DIRECTORY VERSION CONTROL=DESCRIPTION...

DIRECTORY has report.json and, of each control, CONTROL-greedy.json and CONTROL-sampled.json: comparisons with VERSION, the promoted one,
on the test split. The control "agent" is version 0. --writer adds what the first reply of the agent's writer earns by itself.
"""

import json
import sys
from pathlib import Path

AT = {"sampled": "as sampled", "greedy": "greedy"}


def cell(estimate: dict | None) -> str:
    return f"{estimate['mean']:.3f} [{estimate['low']:.3f}, {estimate['high']:.3f}]" if estimate else "-"


def writer(report: dict, version: int) -> dict[str, dict[str, dict | None]]:
    """What the writer's first reply earned on the test split, by how it is read and by temperature."""
    out = {}
    for evaluation in report["agents"]["evaluations"]:
        if evaluation["split"] != "test" or evaluation["version"] != version:
            continue
        at = "greedy" if evaluation["greedy"] else "sampled"
        first = next((agent for agent in evaluation["agents"] if agent["agent"] == "writer"), {}).get("first") or {}
        out.setdefault("its writer alone, as written (the checker switched off)", {})[at] = first.get("as_written")
        out.setdefault("its writer alone, without fence and prose", {})[at] = first.get("without_prose")
    return out


def main(folder: Path, version: int, controls: dict[str, str], *, with_writer: bool) -> None:
    compared = {name: {at: json.loads((folder / f"{name}-{at}.json").read_text()) for at in AT} for name in controls}
    agent = compared["agent"]["sampled"]
    about = f" about {agent['clusters']} databases; intervals of 95 %, by database." if agent.get("cluster") else "; intervals of 95 %."
    print(f"Test: {agent['tasks']} questions{about}")
    if version == 0:
        print("No version was better than version 0 on the gate, so version 0 is still the promoted one.")
    print(f"\n| | version 0, {AT['sampled']} | greedy | version {version}, {AT['sampled']} | greedy |\n| --- | --- | --- | --- | --- |")
    sides = [cell(compared["agent"][at][side]) for side in "ab" for at in AT]
    print(f"| the agent as it is | {' | '.join(sides)} |")
    if with_writer:
        report = json.loads((folder / "report.json").read_text())
        before, after = writer(report, 0), writer(report, version)
        for what in before:
            print(f"| {what} | {' | '.join(cell(side.get(what, {}).get(at)) for side in (before, after) for at in AT)} |")
    for name, what in controls.items():
        if name != "agent":
            print(f"| {what} | {' | '.join(cell(compared[name][at]['a']) for at in AT)} | | |")
    print(f"\n| version {version}'s agent less | {AT['sampled']} | greedy |\n| --- | --- | --- |")
    for name, what in controls.items():
        differences = [(compared[name][at]["difference"], compared[name][at]["p_value"]) for at in AT]
        print(f"| {what} | {' | '.join(f'{cell_signed(d)}, p = {p:.2g}' for d, p in differences)} |")


def cell_signed(d: dict) -> str:
    return f"{d['mean']:+.3f} [{d['low']:+.3f}, {d['high']:+.3f}]"


if __name__ == "__main__":
    words = [word for word in sys.argv[1:] if word != "--writer"]
    main(Path(words[0]), int(words[1]), dict(word.split("=", 1) for word in words[2:]), with_writer="--writer" in sys.argv)
