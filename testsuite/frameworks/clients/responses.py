"""OpenAI's client, responses: whole or streamed, with its items or with previous_response_id."""

import sys

import openai

from cases import TOOLS, run, told

client = openai.OpenAI(max_retries=0)
tools = [{"type": "function", "name": n, "parameters": p, "strict": False} for n, p in TOOLS.items()]


def whole(**asked):
    return client.responses.create(**asked)


def stream(**asked):
    with client.responses.stream(**asked) as events:
        text, arguments, final = "", {}, None
        for e in events:
            if e.type == "response.output_text.delta":
                text += e.delta
            elif e.type == "response.function_call_arguments.delta":
                arguments[e.output_index] = arguments.get(e.output_index, "") + e.delta
            elif e.type in ("response.completed", "response.incomplete"):
                final = e.response
    assert text == final.output_text, (text, final.output_text)
    for i, joined in arguments.items():
        assert joined == final.output[i].arguments, (joined, final.output[i].arguments)
    return final


def finish(reply, calls):
    if reply.status == "incomplete":
        return "cut" if reply.incomplete_details.reason == "max_output_tokens" else reply.incomplete_details.reason
    return "calls" if calls else "end"


def ask(form, by_id):
    def one(before, text, limit):
        before = before or {"input": []}
        asked = dict(before, input=list(before["input"]))
        if text is not None:
            asked["input"].append({"role": "user", "content": text})
        reply = form(model="any", tools=tools, max_output_tokens=limit, **asked)
        calls = [i for i in reply.output if i.type == "function_call"]

        def answer(results):
            outputs = [
                {"type": "function_call_output", "call_id": c.call_id, "output": r} for c, r in zip(calls, results)
            ]
            if by_id:
                return {"previous_response_id": reply.id, "input": outputs}
            return {"input": asked["input"] + [i.model_dump(exclude_none=True) for i in reply.output] + outputs}

        return told(reply.output_text, [(c.name, c.arguments) for c in calls], finish(reply, calls)), answer

    return one


run(ask({"whole": whole, "stream": stream}[sys.argv[1]], sys.argv[2] == "id"))
