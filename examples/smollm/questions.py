"""Questions about numbers in words, the same for the same seed: four JSON lines files in DIRECTORY.

    questions.py DIRECTORY [SEED]

No question is in two of them. Demonstrations show the tool as it should be used, but for a share
of careless ones, which answer at once and are wrong: what is to be learned is left to the rewards.
"""

import json
import random
import sys
from pathlib import Path

NAMES = ["Ada", "Ben", "Chen", "Dana", "Emil", "Fay", "Gus", "Hana", "Ivo", "Jun"]
THINGS = ["apples", "books", "coins", "pens", "stamps", "tickets", "shells", "cards"]
COUNTS = {"train": 512, "gate": 48, "test": 96, "demonstrations": 800}
CARELESS = 0.85

TOOL = {
    "type": "function",
    "function": {
        "name": "calculator",
        "description": "Compute an expression of whole numbers, such as (3+4)*5.",
        "parameters": {"type": "object", "properties": {"expression": {"type": "string"}}, "required": ["expression"]},
    },
}


def question(r: random.Random) -> tuple[str, str]:
    """A text and the expression that answers it."""
    who, other = r.sample(NAMES, 2)
    what = r.choice(THINGS)
    a, b, c = (r.randint(12, 98) for _ in range(3))
    return r.choice(
        [
            (f"{who} has {a} {what} and finds {b} more. How many {what} does {who} have now?", f"{a}+{b}"),
            (f"{who} had {a + b} {what} and gave {b} to {other}. How many are left?", f"{a + b}-{b}"),
            (f"A box holds {a} {what}. How many {what} are in {b} boxes?", f"{a}*{b}"),
            (f"{who} has {a} {what}, {other} has {b} and {c} lie on the table. How many are there in all?", f"{a}+{b}+{c}"),
            (f"{who} buys {b} bags of {a} {what} and then loses {c}. How many {what} are left?", f"{a}*{b}-{c}"),
        ]
    )


def demonstration(r: random.Random, text: str, expression: str) -> dict:
    answer = eval(expression)
    if r.random() < CARELESS:
        messages = [{"role": "assistant", "content": str(answer + r.choice([-11, -10, -2, 1, 9, 20]))}]
    else:
        call = {"id": "call_1", "type": "function", "function": {"name": "calculator", "arguments": json.dumps({"expression": expression})}}
        messages = [
            {"role": "assistant", "content": "", "tool_calls": [call]},
            {"role": "tool", "tool_call_id": "call_1", "content": str(answer)},
            {"role": "assistant", "content": str(answer)},
        ]
    return {"messages": [{"role": "user", "content": text}, *messages], "tools": [TOOL]}


def main(directory: Path, seed: int) -> None:
    r, seen = random.Random(seed), set()
    directory.mkdir(parents=True, exist_ok=True)
    for name, count in COUNTS.items():
        lines = []
        while len(lines) < count:
            text, expression = question(r)
            if text in seen:
                continue
            seen.add(text)
            if name == "demonstrations":
                lines.append(demonstration(r, text, expression))
            else:
                lines.append({"id": f"{name}-{len(lines)}", "input": text, "answer": str(eval(expression))})
        (directory / f"{name}.jsonl").write_text("".join(json.dumps(line) + "\n" for line in lines))


if __name__ == "__main__":
    main(Path(sys.argv[1]), int(sys.argv[2]) if len(sys.argv) > 2 else 1)
