"""Prints what a training was worth, beside what the untrained model can do: the table of `make sql`.

    table.py DIRECTORY PROMPT VERSION [DATA]

DIRECTORY has report.json, agent-*.json and control-*.json, which examples/sql/run writes. PROMPT is the number of the best prompt,
VERSION the promoted version.
"""

import json
import sys
from pathlib import Path

AT = {"sampled": "temperature 1", "greedy": "greedy"}


def cell(estimate: dict | None) -> str:
    return f"{estimate['mean']:.3f} [{estimate['low']:.3f}, {estimate['high']:.3f}]" if estimate else "-"


def rows(report: dict, version: int) -> dict[str, dict[str, dict | None]]:
    """The estimates of a version on the test split, by what is graded and by temperature."""
    out = {}
    for evaluation in report["agents"]["evaluations"]:
        if evaluation["split"] != "test" or evaluation["version"] != version:
            continue
        at = "greedy" if evaluation["greedy"] else "sampled"
        writer = next((agent for agent in evaluation["agents"] if agent["agent"] == "writer"), {})
        first = writer.get("first") or {}
        out.setdefault("the agent as it is", {})[at] = evaluation["mean"]
        out.setdefault("its writer alone, as written (the checker switched off)", {})[at] = first.get("as_written")
        out.setdefault("its writer alone, without fence and prose", {})[at] = first.get("without_prose")
    return out


def difference(folder: Path, name: str, at: str) -> str:
    c = json.loads((folder / f"{name}-{at}.json").read_text())
    d = c["difference"]
    return f"{d['mean']:+.3f} [{d['low']:+.3f}, {d['high']:+.3f}], p = {c['p_value']:.2g}"


def main(folder: Path, prompt: int, version: int, data: str) -> None:
    report = json.loads((folder / "report.json").read_text())
    before, after = rows(report, 0), rows(report, version)
    compared = json.loads((folder / "agent-greedy.json").read_text())
    print(f"Test: {compared['tasks']} questions about {compared['clusters']} databases; intervals of 95 %, by database.")
    if not data:
        print("The questions are the recipe's own: these figures say nothing about Spider.")
    if version == 0:
        print("No version was better than version 0 on the gate, so version 0 is still the promoted one.")
    print(f"\n| | version 0, {AT['sampled']} | greedy | version {version}, {AT['sampled']} | greedy |\n| --- | --- | --- | --- | --- |")
    for name in before:
        cells = [cell(side.get(name, {}).get(at)) for side in (before, after) for at in AT]
        print(f"| {name} | {' | '.join(cells)} |")
    for number in sorted({0, prompt}):
        name = f"control-{number}"
        means = [json.loads((folder / f"{name}-{at}.json").read_text())["a"]["mean"] for at in AT]
        what = "the best of the prompts on the gate" if number == prompt else "the writer's own prompt"
        print(f"| one call with prompt {number}, {what}, without fence and prose | {' | '.join(f'{mean:.3f}' for mean in means)} | | |")
    print(f"\n| version {version}'s agent less | {AT['sampled']} | greedy |\n| --- | --- | --- |")
    for name, what in [("agent", "the untrained agent"), *((f"control-{n}", f"prompt {n}, untrained") for n in sorted({0, prompt}))]:
        print(f"| {what} | {' | '.join(difference(folder, name, at) for at in AT)} |")


if __name__ == "__main__":
    main(Path(sys.argv[1]), int(sys.argv[2]), int(sys.argv[3]), sys.argv[4] if len(sys.argv) > 4 else "")
