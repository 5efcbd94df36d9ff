"""Divides GSM8K for a training: demonstrations of the calculator, train, gate and test share no question.

    split.py GSM8K DIRECTORY [GATE [TEST]]

GSM8K has train.jsonl and test.jsonl: question, and answer with calculations such as <<48/2=24>> and the number after ####. Of train, GATE
questions (160 by default) are the gate's, and 320 become dialogs in demonstrations.jsonl: the solution's own sentences, each with its
calculation as a call of the calculator. The others are trained if their solutions have few calculations. Of test, TEST questions (all by
default) are kept. Digests of the questions decide, so the same data always gives the same splits.
"""

import hashlib
import json
import re
import sys
from pathlib import Path

import data

DEMONSTRATIONS = 320
CALLS = 4  # of a demonstration or a trained question at most; with more, the warm start alone solves hardly any
CALCULATION = re.compile(r"<<([-+*/().\d ]+)=[^>]*>>")


def digest(text: str) -> str:
    return hashlib.sha256(text.encode()).hexdigest()


def computed(expression: str) -> str | None:
    """What agent.py's calculator answers, or nothing if it refuses."""
    try:
        return None if "**" in expression or "//" in expression else f"{eval(expression):.10g}"  # digits and signs alone
    except (SyntaxError, ArithmeticError, TypeError):
        return None


def read(path: Path) -> list[dict]:
    if not path.is_file():
        sys.exit(f"split.py: {path} is not there: give a folder with GSM8K's train.jsonl and test.jsonl, or leave DATA out to make questions")
    rows = [json.loads(line) for line in path.read_text(encoding="utf-8-sig").splitlines() if line.strip()]
    if not rows or not all(isinstance(row, dict) and "question" in row and "####" in row.get("answer", "") for row in rows):
        sys.exit(f"split.py: {path} is not in GSM8K's layout: want a JSON object on each line, with question and answer, whose number follows ####")
    return rows


def dialog(row: dict) -> dict | None:
    """The solution as calls of the calculator, each after the words that lead to it; nothing if it is not that simple."""
    solution, number = (part.strip().replace(",", "") for part in row["answer"].rsplit("####", 1))
    lines = [CALCULATION.split(line) for line in solution.splitlines()]
    if not 1 <= len(lines) <= CALLS or any(len(parts) != 3 for parts in lines):
        return None
    results = [computed(expression) for _, expression, _ in lines]
    if None in results or results[-1] != number:
        return None
    messages = [{"role": "system", "content": data.SYSTEM}, {"role": "user", "content": row["question"]}]
    for index, ((words, expression, _), result) in enumerate(zip(lines, results, strict=True), 1):
        messages += data.called(index, expression, result, words.rstrip(" =$"))
    return {"messages": [*messages, {"role": "assistant", "content": number}], "tools": [data.TOOL]}


def write(path: Path, rows: list[dict]) -> None:
    path.write_text("".join(json.dumps(row, ensure_ascii=False) + "\n" for row in rows), encoding="utf-8")


def main(source: Path, folder: Path, gate: int, test: int) -> None:
    train, asked = read(source / "train.jsonl"), read(source / "test.jsonl")
    drawn = sorted(train, key=lambda row: digest(row["question"]))
    held, rest = drawn[:gate], drawn[gate:]
    shown = [(row, made) for row in rest if (made := dialog(row))][:DEMONSTRATIONS]
    known = {row["question"] for row, _ in shown}
    left = [row for row in rest if row["question"] not in known and row["answer"].count("<<") <= CALLS]
    if not left:
        sys.exit(f"split.py: {source} has {len(train)} questions for training, too few for a gate of {gate} and {len(shown)} demonstrations")
    folder.mkdir(parents=True, exist_ok=True)
    splits = {"train": left, "gate": held, "test": sorted(asked, key=lambda row: digest(row["question"]))[: test or len(asked)]}
    for name, rows in splits.items():
        write(folder / f"{name}.jsonl", rows)
        print(f"{name}: {len(rows)} questions")
    write(folder / "demonstrations.jsonl", [made for _, made in shown])
    print(f"demonstrations: {len(shown)} dialogs")


if __name__ == "__main__":
    numbers = [int(word) for word in sys.argv[3:]]
    main(Path(sys.argv[1]), Path(sys.argv[2]), *(numbers + [160, 0][len(numbers) :]))
