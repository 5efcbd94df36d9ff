"""What the clients ask, and in which words they say what they were answered.

A client is held to what the sampler said: each of its forms (whole or streamed, each API)
has to print the same. The replies are in example.yaml."""

import json

TOOLS = {
    "lookup": {
        "type": "object",
        "properties": {"city": {"type": "string"}, "deep": {"type": "object"}},
        "required": ["city"],
    },
    "now": {"type": "object", "properties": {}},
}

# The text of a user, and the most tokens of the reply.
CASES = [
    ("case plain", 4000),
    ("case spaces", 4000),
    ("case long", 8000),
    ("case call", 4000),
    ("case text and call", 4000),
    ("case two calls", 4000),
    ("case no arguments", 4000),
    ("case cut", 12),
]


def told(text: str, calls: list, finish: str) -> list:
    """What a reply is to the agent: its text, its calls and why it ended."""
    return [text, [[name, json.loads(arguments)] for name, arguments in calls], finish]


def run(ask) -> None:
    """Asks each case, answers its calls, and prints what was told as one line.

    ask(before, text, limit) adds a user's text, or none, to the dialog before and asks. It
    returns what told returns, and a function from the results of tools to the dialog so far."""
    out = []
    for text, limit in CASES:
        reply, answer = ask(None, text, limit)
        out.append(reply)
        if reply[1]:
            results = [f"result {i}" for i in range(len(reply[1]))]
            reply, answer = ask(answer(results), None, limit)
            out.append(reply)
        if reply[2] != "cut":  # a text is continued, too
            reply, answer = ask(answer([]), "and then?", limit)
            out.append(reply)
    print(json.dumps(out, ensure_ascii=False, separators=(",", ":")))
