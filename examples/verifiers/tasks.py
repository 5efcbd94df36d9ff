"""Tasks and rewards of a taskset of verifiers, as a program of tasks.command.

    tasks.py MODULE:TASKSET [COUNT]

A split is the field "split" of the taskset's config; a taskset without one has the split "all". With COUNT a split is the first COUNT
tasks; a taskset without an end needs it. Rewards that need the runtime of verifiers' own rollouts can't be given here: such tasks are at
fault.
"""

import asyncio
import importlib
import json
import sys
from functools import cache

from verifiers import v1 as vf
from verifiers.v1.graph import MessageNode
from verifiers.v1.utils.generic import concrete_type


@cache
def tasks_of(taskset: type[vf.Taskset], count: int, split: str) -> list[vf.Task]:
    config = concrete_type(taskset, vf.TasksetConfig) or vf.TasksetConfig
    if "split" in config.model_fields:
        tasks = taskset(config(split=split))
    elif split != "all":
        sys.exit(f"{taskset.__name__} has no splits: the only one is all")
    else:
        tasks = taskset(config())
    if not tasks.bounded and not count:
        sys.exit(f"{taskset.__name__} has no end: give a number of tasks after its name")
    return list(tasks.take(count) if count else tasks)


def prompt_of(data: vf.TaskData) -> list:
    """The messages with which a rollout begins: the system prompt, then the prompt."""
    begin = [vf.SystemMessage(content=data.system_prompt)] if data.system_prompt is not None else []
    if isinstance(data.prompt, str):
        return [*begin, vf.UserMessage(content=data.prompt)]
    return [*begin, *(data.prompt or [])]


def message(m) -> dict:
    """A message as the chat API has it."""
    out = {key: value for key, value in m.model_dump(mode="json", exclude_none=True).items() if key in ("role", "content", "tool_call_id", "name")}
    if calls := getattr(m, "tool_calls", None):
        out["tool_calls"] = [{"id": c.id, "type": "function", "function": {"name": c.name, "arguments": c.arguments}} for c in calls]
    return out


def listed(taskset: type[vf.Taskset], count: int, split: str) -> list[dict]:
    out = []
    for number, task in enumerate(tasks_of(taskset, count, split)):
        if not task.data.prompt_text.strip():
            why = "its user opens the conversation, which only verifiers' own rollouts have" if task.data.prompt is None else "it has no text"
            sys.exit(f"task {number} of {split} has no prompt: {why}")
        messages = [message(m) for m in prompt_of(task.data)]
        if any(isinstance(m.get("content"), list) and any(part["type"] != "text" for part in m["content"]) for m in messages):
            sys.exit(f"task {number} of {split} has a prompt that is more than text")
        one = {"id": f"{split}-{number}", "input": task.data.prompt_text}
        if [m["role"] for m in messages] != ["user"]:
            one["metadata"] = {"messages": messages}
        # The data stays here, because much of it is no longer the same after JSON: tuples, keys that are numbers, and None where a field
        # needs a value. The answer says which task it is. The hash shows whether this is still the same one.
        one["answer"] = {"split": split, "number": number, "hash": task.hash}
        out.append(one)
    return out


async def graded(taskset: type[vf.Taskset], count: int, task: dict, result: str) -> dict:
    try:
        place = json.loads(task["answer"])
        split, number, hashed = place["split"], int(place["number"]), place["hash"]
    except (ValueError, KeyError, TypeError) as error:
        return {"fault": "task", "message": f"its answer names no task of {taskset.__name__}: {error!r}"}
    known = tasks_of(taskset, count, split)
    if not 0 <= number < len(known) or known[number].hash != hashed:
        return {"fault": "machine", "message": f"{taskset.__name__} here has another task there: use the one that listed the tasks"}
    solved = known[number]
    nodes = [MessageNode(parent=i - 1 if i else None, message=m) for i, m in enumerate(prompt_of(solved.data))]
    nodes.append(MessageNode(parent=len(nodes) - 1, message=vf.AssistantMessage(content=result), sampled=True))
    trace = vf.Trace(
        task=vf.TraceTask(type=type(solved).__name__, data=solved.data),
        agent=vf.AgentInfo(config=vf.AgentConfig()),
        nodes=nodes,
        is_completed=True,
        ok=True,
    )
    names = {fn.__name__ for fn in solved.hooks("reward")} | {judge.reward_name for judge in solved.plugged_judges()}
    await solved.score(trace)
    if missing := sorted(names - trace.rewards.keys()):
        return {"fault": "task", "message": f"its rewards {', '.join(missing)} need a runtime"}
    return {"reward": trace.reward}


def main(name: str, count: int) -> None:
    answers, sys.stdout = sys.stdout, sys.stderr  # what a library prints is no answer
    module, _, taskset = name.partition(":")
    taskset = getattr(importlib.import_module(module), taskset)
    for line in sys.stdin:
        request = json.loads(line)
        if "list" in request:
            lines = listed(taskset, count, request["list"])
        else:
            answer = asyncio.run(graded(taskset, count, request["grade"]["task"], request["grade"]["result"]))
            lines = [{"id": request["id"], **answer}]
        for answer in lines:
            print(json.dumps(answer), file=answers)
        answers.flush()


if __name__ == "__main__":
    main(sys.argv[1], int(sys.argv[2]) if len(sys.argv) > 2 else 0)
