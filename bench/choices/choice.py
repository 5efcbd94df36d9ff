"""Writes the specs of one choice and seed below .choices, and prints the name of its run.

    choice.py CHOICE SEED STEPS TASKS PORT
"""

import copy
import hashlib
import sys
from pathlib import Path

import yaml

FOLDER = Path(".choices")


def name(choice: str, seed: str) -> str:
    """The name of a run: equal for equal choices."""
    return f"choice-{hashlib.sha256(choice.encode()).hexdigest()[:8]}-{seed}"


def base(choice: str) -> tuple[dict, str]:
    """The spec that a choice begins from, and the rest of the choice."""
    first, _, rest = choice.partition(" ")
    name = "policies" if first == "policies" else "qwen"
    spec = yaml.safe_load(Path(f"examples/sql/{name}.yaml").read_text())
    if spec["grader"]["type"] == "command":
        spec["grader"]["directory"] = "../examples/sql"
    return spec, rest if first in ("policies", "default") else choice


def evaluation(spec: dict) -> dict:
    """The spec by which versions are compared: all with one grader, whatever they were trained with."""
    out = copy.deepcopy({key: spec[key] for key in ("model", "agent", "policies", "sampling") if key in spec})
    for policy in out.get("policies", {}).values():
        policy.pop("credit", None)
    return out | {"grader": {"type": "sql"}}


def changed(spec: dict, choice: str) -> dict:
    """The spec with the keys of a choice set."""
    spec = copy.deepcopy(spec)
    for setting in choice.split():
        key, equals, value = setting.partition("=")
        if not equals:
            sys.exit(f"choice.py: {setting} is not of the form KEY=VALUE")
        *path, last = key.split(".")
        at = spec
        for part in path:
            at = at.setdefault(part, {})
        at[last] = yaml.safe_load(value)
    return spec


def main(choice: str, seed: str, steps: int, tasks: int, port: int) -> None:
    spec, settings = base(choice)
    spec["model"]["base"] = "../.sql/model"
    spec["agent"]["service"]["url"] = f"http://127.0.0.1:{port}/run"
    spec["training"] |= {"steps": steps, "tasks_per_step": tasks}
    spec["seed"] = int(seed)
    evaluated = evaluation(spec)
    for key in ("evaluation", "promotion"):  # there is no gate split while it trains
        spec.pop(key, None)
    run = name(choice, seed)
    files = {
        run: changed(spec | {"name": run, "tasks": {"train": "spider:../.sql/data/train.json"}}, settings),
        f"{run}-sampled": evaluated | {"name": run, "tasks": {"gate": "spider:../.sql/data/gate.json"}},
    }
    files[f"{run}-greedy"] = copy.deepcopy(files[f"{run}-sampled"])
    files[f"{run}-greedy"]["sampling"]["temperature"] = 0
    for file, content in files.items():
        (FOLDER / f"{file}.yaml").write_text(yaml.safe_dump(content, sort_keys=False))
    print(run)


if __name__ == "__main__":
    main(sys.argv[1], sys.argv[2], *(int(word) for word in sys.argv[3:]))
