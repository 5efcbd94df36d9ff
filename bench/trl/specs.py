"""Writes the specs of bench/trl/run below .trl: specs.py PRECISION STEPS TASKS SAMPLES PORT."""

import copy
import sys
from pathlib import Path

import yaml

FOLDER = Path(".trl")


def main(precision: str, steps: int, tasks: int, samples: int, port: int) -> None:
    lora = {"rank": 16, "alpha": 32, "base_precision": precision}
    gate = {
        "name": "gate",
        "model": {"base": "../.sql/model", "codec": "template", "lora": lora},
        "agent": {"service": {"url": f"http://127.0.0.1:{port}/run"}, "limits": {"calls": 1, "seconds": 600}},
        "tasks": {"gate": "spider:../.sql/data/gate.json"},
        "grader": {"type": "sql"},
        "sampling": {"max_tokens": 96},
    }
    writer = gate | {
        "name": "writer",
        "tasks": {"train": "spider:train.json"},
        "training": {"steps": steps, "tasks_per_step": tasks, "samples_per_task": samples, "optimizer": {"learning_rate": 1e-4}},
    }
    trained = copy.deepcopy(gate)
    trained["model"]["lora"] = {"adapter": f"trl-{precision}/adapter", "base_precision": precision}
    specs = {f"writer-{precision}": writer, "gate-sampled": gate, f"trl-{precision}-sampled": trained}
    for name, spec in list(specs.items()):
        if name.endswith("-sampled"):
            greedy = copy.deepcopy(spec)
            greedy["sampling"]["temperature"] = 0
            specs[name.replace("-sampled", "-greedy")] = greedy
    for name, spec in specs.items():
        (FOLDER / f"{name}.yaml").write_text(yaml.safe_dump(spec, sort_keys=False))


if __name__ == "__main__":
    main(sys.argv[1], *(int(word) for word in sys.argv[2:]))
