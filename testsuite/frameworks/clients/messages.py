"""Anthropic's client, messages: whole or streamed by its own accumulator."""

import json
import sys

import anthropic

from cases import TOOLS, run, told

client = anthropic.Anthropic(max_retries=0)
tools = [{"name": n, "input_schema": p} for n, p in TOOLS.items()]
FINISH = {"end_turn": "end", "tool_use": "calls", "max_tokens": "cut"}


def whole(messages, limit):
    return client.messages.create(model="any", max_tokens=limit, messages=messages, tools=tools)


def stream(messages, limit):
    with client.messages.stream(model="any", max_tokens=limit, messages=messages, tools=tools) as events:
        text = "".join(events.text_stream)
        final = events.get_final_message()
    assert text == "".join(b.text for b in final.content if b.type == "text")
    return final


def ask(form):
    def one(messages, text, limit):
        messages = list(messages or [])
        if text is not None:
            if messages and messages[-1]["role"] == "user":
                messages[-1]["content"].append({"type": "text", "text": text})
            else:
                messages.append({"role": "user", "content": [{"type": "text", "text": text}]})
        m = form(messages, limit)
        calls = [b for b in m.content if b.type == "tool_use"]
        assert m.usage.output_tokens > 0

        def answer(results):
            after = messages + [{"role": "assistant", "content": m.content}]
            if results:
                blocks = [{"type": "tool_result", "tool_use_id": b.id, "content": r} for b, r in zip(calls, results)]
                after.append({"role": "user", "content": blocks})
            return after

        said = "".join(b.text for b in m.content if b.type == "text")
        return told(said, [(b.name, json.dumps(b.input)) for b in calls], FINISH[m.stop_reason]), answer

    return one


run(ask({"whole": whole, "stream": stream}[sys.argv[1]]))
