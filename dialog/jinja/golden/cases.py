"""Writes cases.json: what every template is rendered with.

A case is an object of variables, as transformers' apply_chat_template would give
them to the template. Run it again after a change; then run render.py.
"""

import json
import pathlib


def call(name, arguments, id=None):
    made = {"type": "function", "function": {"name": name, "arguments": arguments}}
    return {"id": id, **made} if id else made


def user(text="What's the weather in Paris?"):
    return {"role": "user", "content": text}


def assistant(text, **more):
    return {"role": "assistant", "content": text, **more}


def result(text, **more):
    return {"role": "tool", "content": text, **more}


system = {"role": "system", "content": "You are helpful.\nAnswer briefly."}

weather = {
    "type": "function",
    "function": {
        "name": "get_weather",
        "description": "Get the weather <now> & \"here\" 'there'.",
        "parameters": {
            "type": "object",
            "properties": {
                "city": {"type": "string", "description": "The city, e.g. Zürich"},
                "days": {"type": "integer", "default": 1, "minimum": 1},
                "unit": {"type": "string", "enum": ["celsius", "fahrenheit"]},
            },
            "required": ["city"],
        },
    },
}
search = {
    "type": "function",
    "function": {
        "name": "search",
        "description": "Search many places.\nTwo lines.",
        "parameters": {
            "type": "object",
            "properties": {
                "query": {"type": ["string", "null"], "description": "What to look for"},
                "filters": {
                    "type": "object",
                    "description": "Narrow it",
                    "properties": {
                        "tags": {"type": "array", "items": {"type": "string"}, "description": "Tags"},
                        "score": {"type": "number", "nullable": True},
                    },
                    "required": ["tags"],
                },
                "pages": {"type": "array", "items": {"type": "object", "properties": {"n": {"type": "integer"}}}},
                "either": {"anyOf": [{"type": "string"}, {"type": "integer"}], "description": "One of two"},
                "flag": {"type": "boolean", "default": False},
            },
            "required": ["query", "filters"],
            "additionalProperties": False,
        },
        "return": {"type": "array", "description": "What was found", "items": {"type": "string"}},
    },
}
bare = {"type": "function", "function": {"name": "now", "description": "The time", "parameters": {"type": "object", "properties": {}}}}
tools = [weather, search, bare]

nested = {"query": "naïve \"quotes\" <b> & 'x'", "filters": {"tags": ["a", "b\n"], "score": 1.5}, "pages": [{"n": 1}, {"n": -2}],
          "either": None, "flag": True, "big": 12345678901234567890, "small": 1e-7, "large": 1e16, "whole": 2.0, "empty": {}, "none": []}

sets = {
    "user": [user()],
    "system": [system, user()],
    "empty system": [{"role": "system", "content": ""}, user()],
    "turns": [system, user("Hi"), assistant("Hello!"), user("Bye\n")],
    "answered": [user("Hi"), assistant("Hello!\n\n")],
    "space": [user("  leading\n\n"), assistant("\n  both  \n"), user("\ttabs\t")],
    "empty": [user(""), assistant(""), user("again")],
    "unicode": [user("Grüße 👋🏽 日本語 \u00a0\u2028 e\u0301 ﷽"), assistant("né <|im_end|> </s>"), user("ok\r\nnew")],
    "long": [system] + [m for i in range(10) for m in (user(f"Question {i}"), assistant(f"Answer {i}: " + "word " * i))] + [user("Last?")],
    "call": [user(), assistant("", tool_calls=[call("get_weather", {"city": "Paris", "days": 2}, "call00001")])],
    "called": [system, user(), assistant("", tool_calls=[call("get_weather", {"city": "Paris"}, "call00001")]),
               result("21 °C", tool_call_id="call00001", name="get_weather")],
    "called, null": [user(), assistant(None, tool_calls=[call("get_weather", {"city": "Paris"}, "call00001")]),
                     result("{\"t\": 21}", tool_call_id="call00001", name="get_weather"), assistant("21 degrees."), user("Thanks")],
    "called, no content": [user(), {"role": "assistant", "tool_calls": [call("now", {}, "call00001")]},
                           result("12:00", tool_call_id="call00001")],
    "called, text": [user(), assistant("Let me look.", tool_calls=[call("search", nested, "call00001")]),
                     result("nothing", tool_call_id="call00001", name="search"), assistant("Nothing.")],
    "called, string": [user(), assistant("", tool_calls=[call("get_weather", "{\"city\": \"Paris\"}", "call00001")]),
                       result("21", tool_call_id="call00001", name="get_weather")],
    "parallel": [system, user("Two cities"), assistant("", tool_calls=[call("get_weather", {"city": "Paris"}, "call00001"), call("get_weather", {"city": "Rome", "unit": "celsius"}, "call00002")]),
                 result("21", tool_call_id="call00001", name="get_weather"), result("25", tool_call_id="call00002", name="get_weather")],
    "chain": [user("Do"), assistant("", tool_calls=[call("now", {}, "call00001")]), result("12", tool_call_id="call00001", name="now"),
              assistant("", tool_calls=[call("get_weather", {"city": "X"}, "call00002")]), result("1", tool_call_id="call00002", name="get_weather"),
              assistant("Done."), user("And?"), assistant("", tool_calls=[call("now", {}, "call00003")]), result("13", tool_call_id="call00003", name="now")],
    "object result": [user(), assistant("", tool_calls=[call("get_weather", {"city": "Paris"}, "call00001")]),
                      result({"degrees": 21.5, "sky": ["blue", None]}, tool_call_id="call00001", name="get_weather")],
    "reasoning": [user("1+1"), assistant("2", reasoning_content="Add one and one."), user("2+2")],
    "reasoning last": [user("1+1"), assistant("2", reasoning_content="Add.\n", thinking="Add.\n")],
    "reasoning null": [user("1+1"), assistant("2", reasoning_content=None), user("2+2"), assistant("4", reasoning_content="")],
    "thought inline": [user("1+1"), assistant("<think>\nAdd.\n</think>\n\n2"), user("2+2"), assistant("<think>so</think>4")],
    "reasoning call": [user(), assistant("", reasoning_content="I need a tool.", thinking="I need a tool.", tool_calls=[call("get_weather", {"city": "Paris"}, "call00001")]),
                       result("21", tool_call_id="call00001", name="get_weather"), assistant("21.", reasoning_content="Easy.")],
    "parts": [{"role": "system", "content": [{"type": "text", "text": "Be kind."}]}, {"role": "user", "content": [{"type": "text", "text": "One"}, {"type": "text", "text": "Two"}]},
              {"role": "assistant", "content": [{"type": "text", "text": "Three"}]}, user("Four")],
    "image": [{"role": "user", "content": [{"type": "image"}, {"type": "text", "text": "What is it?"}]}],
    "developer": [{"role": "developer", "content": "Obey."}, user()],
    "two users": [user("One"), user("Two")],
    "assistant first": [assistant("Hi!"), user("Hello")],
    "system late": [user("One"), system, user("Two")],
    "no messages": [],
    "strange role": [user(), {"role": "critic", "content": "Bad."}],
    "no role": [{"content": "x"}],
}

base = {"tools": None, "documents": None, "bos_token": "<s>", "eos_token": "</s>", "pad_token": "<pad>", "unk_token": "<unk>"}
cases = {}
for name, messages in sets.items():
    for prompt in (True, False):
        for offered in (None, tools):
            label = name + (", prompt" if prompt else "") + (", tools" if offered else "")
            cases[label] = {**base, "messages": messages, "tools": offered, "add_generation_prompt": prompt}

options = {
    "thinking": {"enable_thinking": True, "thinking": True},
    "no thinking": {"enable_thinking": False, "thinking": False},
    "no tools": {"tools": []},
    "effort": {"reasoning_effort": "high", "date_string": "21 Nov 2026", "builtin_tools": ["browser", "python"], "model_identity": "You are Flint."},
    "documents": {"documents": [{"title": "T", "text": "Body", "doc_id": 1}], "tools_in_user_message": False, "preserve_thinking": True,
                  "clear_thinking": False, "keep_past_thinking": True},
    "one tool": {"tools": [bare]},
    "bare tools": {"tools": [weather["function"], bare["function"]]},
}
for name, option in options.items():
    for label in ("system", "turns", "parallel", "reasoning call", "thought inline"):
        cases[label + "; " + name] = {**base, "messages": sets[label], "tools": tools, "add_generation_prompt": True, **option}

lines = (json.dumps({"name": name, "variables": case}, ensure_ascii=False, separators=(",", ":")) for name, case in cases.items())
target = pathlib.Path(__file__).parent / "cases.json"
target.write_text("[\n" + ",\n".join(lines) + "\n]\n", encoding="utf-8")
print(len(cases), "cases")
