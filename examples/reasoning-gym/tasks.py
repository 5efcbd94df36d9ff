"""Tasks and rewards of reasoning-gym, as a program of tasks.command.

    tasks.py DATASET [COUNT]

Splits are train, gate and test: parts of the same data set that are far apart, COUNT tasks each, by default 256.
"""

import json
import sys
from functools import cache

import reasoning_gym

# The library draws item i from the seed SEED + i. Splits with near seeds would share most of their items.
MOST = 1_000_000
SEEDS = {"train": 1 * MOST, "gate": 2 * MOST, "test": 3 * MOST}


@cache
def dataset_of(name: str, split: str):
    return reasoning_gym.create_dataset(name, seed=SEEDS[split], size=MOST)


def listed(dataset: str, count: int, split: str) -> list[dict]:
    if split not in SEEDS:
        sys.exit(f"no split {split}: there are {', '.join(SEEDS)}")
    if not 1 <= count <= MOST:
        sys.exit(f"{count} tasks: a split has 1 to {MOST}")
    items, tasks = dataset_of(dataset, split), []
    for number in range(count):
        entry = items[number]
        gold = entry["answer"]  # None if the data set has many right answers and lists none
        if gold is not None and (reward := items.score_answer(gold, entry)) < 1:
            sys.exit(f"{dataset}: the own answer of item {number} of {split} earns {reward}")
        # The entry stays here, because many entries are no longer the same after JSON. The answer says which one it is.
        tasks.append({"id": f"{split}-{number}", "input": entry["question"], "answer": {"split": split, "number": number, "answer": gold}})
    return tasks


def graded(dataset: str, task: dict, result: str) -> dict:
    try:
        place = json.loads(task["answer"])
        items, number = dataset_of(dataset, place["split"]), int(place["number"])
    except (ValueError, KeyError, TypeError) as error:
        return {"fault": "task", "message": f"its answer names no entry of reasoning-gym: {error!r}"}
    entry = items[number]
    if entry["question"] != task["input"]:
        return {"fault": "machine", "message": "reasoning-gym here has another question there: use the version that listed the tasks"}
    return {"reward": float(items.score_answer(result, entry))}


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
