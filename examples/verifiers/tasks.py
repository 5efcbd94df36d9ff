"""Tasks and rewards of a taskset of verifiers, as a program of tasks.command.

    tasks.py MODULE:TASKSET

A split is the field "split" of the taskset's config; a taskset without one has the split "all". Rewards that need the runtime of
verifiers' own rollouts can't be given here: such tasks are at fault.
"""

import asyncio
import importlib
import json
import sys

from verifiers import v1 as vf
from verifiers.v1.graph import MessageNode
from verifiers.v1.utils.generic import concrete_type


def tasks_of(taskset: type[vf.Taskset], split: str) -> list[vf.Task]:
    config = concrete_type(taskset, vf.TasksetConfig) or vf.TasksetConfig
    if "split" in config.model_fields:
        return list(taskset(config(split=split)))
    if split != "all":
        sys.exit(f"{taskset.__name__} has no splits: the only one is all")
    return list(taskset(config()))


def listed(taskset: type[vf.Taskset], split: str) -> list[dict]:
    # The task's data is needed to grade. It is the answer, which no agent sees.
    return [
        {"id": f"{split}-{number}", "input": task.data.prompt_text, "answer": task.data.model_dump(mode="json", exclude_none=True)}
        for number, task in enumerate(tasks_of(taskset, split))
    ]


async def graded(taskset: type[vf.Taskset], task: dict, result: str) -> dict:
    kind = taskset.task_type()
    try:
        solved = kind(kind.data_type().model_validate_json(task["answer"]))
    except ValueError as error:
        return {"fault": "task", "message": f"its answer is no data of {kind.__name__}: {error}"}
    prompt, reply = vf.UserMessage(content=task["input"]), vf.AssistantMessage(content=result)
    trace = vf.Trace(
        task=vf.TraceTask(type=kind.__name__, data=solved.data),
        agent=vf.AgentInfo(config=vf.AgentConfig()),
        nodes=[MessageNode(message=prompt), MessageNode(parent=0, message=reply, sampled=True)],
        is_completed=True,
        ok=True,
    )
    names = {fn.__name__ for fn in solved.hooks("reward")} | {judge.reward_name for judge in solved.plugged_judges()}
    await solved.score(trace)
    if missing := sorted(names - trace.rewards.keys()):
        return {"fault": "task", "message": f"its rewards {', '.join(missing)} need a runtime"}
    return {"reward": trace.reward}


def main(name: str) -> None:
    answers, sys.stdout = sys.stdout, sys.stderr  # what a library prints is no answer
    module, _, taskset = name.partition(":")
    taskset = getattr(importlib.import_module(module), taskset)
    for line in sys.stdin:
        request = json.loads(line)
        if "list" in request:
            lines = listed(taskset, request["list"])
        else:
            answer = asyncio.run(graded(taskset, request["grade"]["task"], request["grade"]["result"]))
            lines = [{"id": request["id"], **answer}]
        for answer in lines:
            print(json.dumps(answer), file=answers)
        answers.flush()


if __name__ == "__main__":
    main(sys.argv[1])
