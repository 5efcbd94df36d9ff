"""OpenAI's client, chat completions: whole, streamed, or streamed by its own accumulator."""

import sys

import openai

from cases import TOOLS, run, told

client = openai.OpenAI(max_retries=0)
tools = [{"type": "function", "function": {"name": n, "parameters": p}} for n, p in TOOLS.items()]
FINISH = {"stop": "end", "tool_calls": "calls", "length": "cut"}


def whole(messages, limit):
    reply = client.chat.completions.create(model="any", messages=messages, tools=tools, max_completion_tokens=limit)
    return reply.choices[0]


def stream(messages, limit):
    asked = dict(model="any", messages=messages, tools=tools, max_completion_tokens=limit)
    with client.chat.completions.stream(**asked, stream_options={"include_usage": True}) as events:
        for _ in events:
            pass
        # Its parser refuses a reply that was cut off, which is what the case looks for.
        snapshot = events.current_completion_snapshot
    assert snapshot.usage.completion_tokens > 0, "no usage"
    return snapshot.choices[0]


def by_hand(messages, limit):
    """As most agents read streams: deltas are added up."""
    text, calls, finish = "", {}, None
    asked = dict(model="any", messages=messages, tools=tools, max_completion_tokens=limit, stream=True)
    for chunk in client.chat.completions.create(**asked):
        for choice in chunk.choices:
            text += choice.delta.content or ""
            for c in choice.delta.tool_calls or []:
                one = calls.setdefault(c.index, {"id": "", "type": "function", "function": {"name": "", "arguments": ""}})
                one["id"] += c.id or ""
                one["function"]["name"] += c.function.name or ""
                one["function"]["arguments"] += c.function.arguments or ""
            finish = choice.finish_reason or finish
    message = {"role": "assistant", "content": text or None}
    if calls:
        message["tool_calls"] = list(calls.values())
    return openai.types.chat.chat_completion.Choice.model_validate(
        {"index": 0, "finish_reason": finish, "message": message}
    )


def ask(form):
    def one(messages, text, limit):
        messages = list(messages or [])
        if text is not None:
            messages.append({"role": "user", "content": text})
        choice = form(messages, limit)
        m = choice.message
        calls = [(c.function.name, c.function.arguments) for c in m.tool_calls or []]

        def answer(results):
            after = messages + [m.model_dump(exclude_none=True, exclude={"parsed"})]
            for c, r in zip(m.tool_calls or [], results):
                after.append({"role": "tool", "tool_call_id": c.id, "content": r})
            return after

        return told(m.content or "", calls, FINISH[choice.finish_reason]), answer

    return one


run(ask({"whole": whole, "stream": stream, "by_hand": by_hand}[sys.argv[1]]))
