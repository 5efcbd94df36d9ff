"""Questions about numbers in words in GSM8K's layout, the same for the same seed.

    data.py DIRECTORY [SEED]

train.jsonl, dev.jsonl and test.jsonl share no question. demonstrations.jsonl shows how the calculator is called; half of the
answers there come at once and are wrong, since that it pays to compute is to be learned from rewards.
"""

import json
import random
import sys
from pathlib import Path

NAMES = ["Ada", "Ben", "Chen", "Dana", "Emil", "Fay"]
THINGS = ["apples", "books", "coins", "pens"]
COUNTS = {"train": 48, "dev": 12, "test": 24}

SYSTEM = "Compute, then answer with the number alone."
# The calculator as AutoGen describes it to the model.
PARAMETERS = {
    "type": "object",
    "properties": {"expression": {"description": "expression", "title": "Expression", "type": "string"}},
    "required": ["expression"],
    "additionalProperties": False,
}
FUNCTION = {"name": "calculator", "description": "Compute an arithmetic expression.", "parameters": PARAMETERS, "strict": False}
TOOL = {"type": "function", "function": FUNCTION}


def question(r: random.Random) -> tuple[str, str]:
    """A text and the expression that answers it."""
    who, other = r.sample(NAMES, 2)
    what = r.choice(THINGS)
    a, b, c = r.randint(2, 9), r.randint(11, 49), r.randint(2, 10)
    return r.choice(
        [
            (f"{who} has {b} {what} and finds {a} more. How many {what} does {who} have?", f"{b}+{a}"),
            (f"A box holds {b} {what}. How many {what} are in {a} boxes?", f"{b}*{a}"),
            (f"{who} buys {a} bags of {b} {what} and loses {c}. How many {what} are left?", f"{a}*{b}-{c}"),
            (f"{who} has {b} {what} and {other} has {a} times as many. How many do both have?", f"{b}+{a}*{b}"),
        ]
    )


def called(number: int, expression: str, result: str, words: str | None = None) -> list[dict]:
    """A call of the calculator, the words before it, and its result."""
    function = {"name": "calculator", "arguments": json.dumps({"expression": expression})}
    return [
        {"role": "assistant", "content": words, "tool_calls": [{"id": f"call_{number}", "type": "function", "function": function}]},
        {"role": "tool", "tool_call_id": f"call_{number}", "content": result},
    ]


def demonstration(r: random.Random, text: str, expression: str) -> dict:
    answer = eval(expression)
    messages = [{"role": "system", "content": SYSTEM}, {"role": "user", "content": text}]
    if r.random() < 0.5:
        messages.append({"role": "assistant", "content": str(answer + r.choice([-10, -1, 1, 10]))})
    else:
        messages += [*called(1, expression, str(answer)), {"role": "assistant", "content": str(answer)}]
    return {"messages": messages, "tools": [TOOL]}


def main(folder: Path, seed: int) -> None:
    r, seen = random.Random(seed), set()
    folder.mkdir(parents=True, exist_ok=True)
    asked = {}
    for name, count in COUNTS.items():
        rows = asked[name] = []
        while len(rows) < count:
            text, expression = question(r)
            if text not in seen:
                seen.add(text)
                rows.append((text, expression))
        solved = [{"question": text, "answer": f"{expression} = <<{expression}={eval(expression)}>>{eval(expression)}\n#### {eval(expression)}"} for text, expression in rows]
        (folder / f"{name}.jsonl").write_text("".join(json.dumps(row) + "\n" for row in solved))
    shown = [demonstration(r, *pair) for _ in range(8) for pair in asked["train"]]
    r.shuffle(shown)
    (folder / "demonstrations.jsonl").write_text("".join(json.dumps(line) + "\n" for line in shown))


if __name__ == "__main__":
    main(Path(sys.argv[1]), int(sys.argv[2]) if len(sys.argv) > 2 else 1)
