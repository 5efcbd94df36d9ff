"""A loop around Anthropic's client, with a tool."""

import json
import sys

import anthropic

client = anthropic.Anthropic()
TOOLS = [
    {
        "name": "temperature",
        "description": "The temperature in a city.",
        "input_schema": {
            "type": "object",
            "properties": {"city": {"type": "string"}},
            "required": ["city"],
        },
    }
]


def ask(messages: list) -> anthropic.types.Message:
    return client.messages.create(
        model="claude-sonnet-4-5",
        max_tokens=1000,
        system="Talk about the weather.",
        messages=messages,
        tools=TOOLS,
    )


def talk(question: str, ask) -> str:
    messages = [{"role": "user", "content": question}]
    while True:
        reply = ask(messages)
        messages.append({"role": "assistant", "content": reply.content})
        if reply.stop_reason != "tool_use":
            return "".join(block.text for block in reply.content if block.type == "text")
        results = [
            {"type": "tool_result", "tool_use_id": block.id, "content": "21"}
            for block in reply.content
            if block.type == "tool_use"
        ]
        messages.append({"role": "user", "content": results})


if __name__ == "__main__":
    task = json.load(sys.stdin)
    print(talk(task["input"], ask))
