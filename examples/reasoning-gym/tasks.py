"""Tasks and rewards of reasoning-gym, as a program of tasks.command.

    tasks.py DATASET [COUNT]

Splits are train, gate and test: the same data set from other seeds, COUNT tasks each, by default 256.
"""

import json
import sys

import reasoning_gym

SEEDS = {"train": 1, "gate": 2, "test": 3}


def listed(dataset: str, count: int, split: str) -> list[dict]:
    if split not in SEEDS:
        sys.exit(f"no split {split}: there are {', '.join(SEEDS)}")
    entries = reasoning_gym.create_dataset(dataset, seed=SEEDS[split], size=count)
    # The whole entry is needed to grade. It is the task's answer, which no agent sees.
    return [{"id": f"{split}-{number}", "input": entry["question"], "answer": entry} for number, entry in enumerate(entries)]


def graded(dataset: str, task: dict, result: str) -> dict:
    try:
        entry = json.loads(task["answer"])
    except ValueError as error:
        return {"fault": "task", "message": f"its answer is no entry of reasoning-gym: {error}"}
    return {"reward": float(reasoning_gym.get_score_answer_fn(dataset)(result, entry))}


def main(dataset: str, count: int) -> None:
    answers, sys.stdout = sys.stdout, sys.stderr  # what a library prints is no answer
    for line in sys.stdin:
        request = json.loads(line)
        if "list" in request:
            lines = listed(dataset, count, request["list"])
        else:
            lines = [{"id": request["id"], **graded(dataset, request["grade"]["task"], request["grade"]["result"])}]
        for answer in lines:
            print(json.dumps(answer, default=str), file=answers)
        answers.flush()


if __name__ == "__main__":
    main(sys.argv[1], int(sys.argv[2]) if len(sys.argv) > 2 else 256)
