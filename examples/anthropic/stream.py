"""The same loop, its text streamed."""

import json
import sys

import anthropic

from agent import TOOLS, client, talk

said = []


def ask(messages: list) -> anthropic.types.Message:
    said.clear()
    with client.messages.stream(
        model="claude-sonnet-4-5",
        max_tokens=1000,
        system="Talk about the weather.",
        messages=messages,
        tools=TOOLS,
    ) as stream:
        said.extend(stream.text_stream)
        return stream.get_final_message()


if __name__ == "__main__":
    task = json.load(sys.stdin)
    answer = talk(task["input"], ask)
    assert answer == "".join(said), said
    print(answer)
