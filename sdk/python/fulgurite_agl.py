"""Runs an agent that was written for Agent Lightning 0.3 as an agent of Fulgurite.

    python fulgurite_agl.py my_agent:agent
    python fulgurite_agl.py my_agent.py:MyAgent

The name after the colon is a LitAgent, a subclass of it, or a function under
@rollout, @llm_rollout or @prompt_rollout. One process is one rollout: the task comes
from standard input as Fulgurite writes it, the LLM resource points to the attempt's
model, and rewards that the agent returns or emits are posted.

Where the package agentlightning is installed, the agent gets its classes; where it is
not, it gets the few below under the same names, so that an agent needs nothing of the
trainer's dependencies. Only the side of agents is here: Trainer, algorithms, stores
and tracers belong to what Fulgurite does instead.
"""

import asyncio
import functools
import importlib
import importlib.util
import inspect
import json
import os
import sys
import types
import urllib.request
from dataclasses import dataclass, field
from typing import Any


class Rewards:
    """Posts the rewards of one rollout at its end. The last one emitted of each name and call counts."""

    def __init__(self) -> None:
        self.final: float | None = None
        self.others: dict[tuple[str, str], float] = {}

    def emit(self, reward: Any, *_: Any, primary_key: str | None = None, attributes: dict[str, Any] | None = None, **__: Any) -> None:
        call = linked_call(attributes or {})
        named = reward if isinstance(reward, dict) else {"final": reward}
        if "final" not in named and named:
            named = {"final": named[primary_key or next(iter(named))], **named}
        for name, value in named.items():
            if name == "final" and not call:
                self.final = float(value)
            else:
                self.others[name, call] = float(value)

    def post_all(self) -> None:
        for (name, call), value in self.others.items():
            self.post(name, value, call)
        if self.final is not None:
            self.post("final", self.final)

    def post(self, name: str, value: float, call: str = "") -> None:
        url = os.environ.get("FULGURITE_REWARD_URL")
        if not url:
            return
        request = urllib.request.Request(
            url,
            data=json.dumps({"name": name, "value": float(value), **({"call_id": call} if call else {})}).encode(),
            headers={
                "Authorization": f"Bearer {os.environ['OPENAI_API_KEY']}",
                "Content-Type": "application/json",
            },
        )
        with urllib.request.urlopen(request) as reply:
            reply.read()


def linked_call(attributes: dict[str, Any]) -> str:
    """The id of the reply that a reward is about, by make_link_attributes({"gen_ai.response.id": id})."""
    for name, key in attributes.items():
        if name.startswith("agentlightning.link.") and name.endswith(".key_match") and str(key).endswith("response.id"):
            return str(attributes.get(name.removesuffix("key_match") + "value_match", ""))
    return ""


rewards = Rewards()


class LitAgent:
    """The base class of agents, as far as agents themselves use it."""

    def __class_getitem__(cls, _: Any) -> type:
        return cls

    def __init__(self, **_: Any) -> None:
        pass

    def is_async(self) -> bool:
        return any(
            getattr(type(self), name, None) is not getattr(LitAgent, name)
            for name in ("rollout_async", "training_rollout_async", "validation_rollout_async")
        )

    def rollout(self, task: Any, resources: Any, rollout: Any) -> Any:
        raise NotImplementedError("the agent implements no rollout")

    async def rollout_async(self, task: Any, resources: Any, rollout: Any) -> Any:
        raise NotImplementedError("the agent implements no rollout_async")

    def training_rollout(self, task: Any, resources: Any, rollout: Any) -> Any:
        return self.rollout(task, resources, rollout)

    def validation_rollout(self, task: Any, resources: Any, rollout: Any) -> Any:
        return self.rollout(task, resources, rollout)

    async def training_rollout_async(self, task: Any, resources: Any, rollout: Any) -> Any:
        return await self.rollout_async(task, resources, rollout)

    async def validation_rollout_async(self, task: Any, resources: Any, rollout: Any) -> Any:
        return await self.rollout_async(task, resources, rollout)


@dataclass
class LLM:
    endpoint: str
    model: str
    api_key: str | None = None
    sampling_parameters: dict[str, Any] = field(default_factory=dict)

    def get_base_url(self, *_: Any) -> str:
        return self.endpoint


@dataclass
class PromptTemplate:
    template: str
    engine: str = "f-string"

    def format(self, **values: Any) -> str:
        return self.template.format(**values)


class FunctionAgent(LitAgent):
    """A function under @rollout: its parameters say what it wants."""

    def __init__(self, function: Any) -> None:
        super().__init__()
        self.function = function
        functools.update_wrapper(self, function)

    def __call__(self, *arguments: Any, **named: Any) -> Any:
        return self.function(*arguments, **named)

    def is_async(self) -> bool:
        return inspect.iscoroutinefunction(self.function)

    def wanted(self, task: Any, resources: Any, rollout: Any) -> dict[str, Any]:
        offered = {"task": task, "rollout": rollout, "resources": resources}
        for resource in resources.values():
            name = "llm" if hasattr(resource, "endpoint") else "prompt_template"
            offered.setdefault(name, resource)
        names = list(inspect.signature(self.function).parameters)
        missing = [name for name in names[1:] if name not in offered]
        if missing:
            raise SystemExit(f"{self.function.__name__} asks for {', '.join(missing)}, which a rollout does not have")
        return {name: task if i == 0 else offered[name] for i, name in enumerate(names)}

    def rollout(self, task: Any, resources: Any, rollout: Any) -> Any:
        return self.function(**self.wanted(task, resources, rollout))

    async def rollout_async(self, task: Any, resources: Any, rollout: Any) -> Any:
        return await self.function(**self.wanted(task, resources, rollout))


def namespace() -> types.ModuleType:
    """The package agentlightning: the installed one with our emit_reward, or ours."""
    if importlib.util.find_spec("agentlightning") is not None:
        real = importlib.import_module("agentlightning")
        real.emit_reward = rewards.emit
        for name in ("emitter", "reward", "emitter.reward"):
            try:
                importlib.import_module(f"agentlightning.{name}").emit_reward = rewards.emit
            except ImportError:
                continue
        return real
    ours = types.ModuleType("agentlightning")
    for name, value in {
        "LitAgent": LitAgent, "LLM": LLM, "PromptTemplate": PromptTemplate, "rollout": FunctionAgent, "llm_rollout": FunctionAgent,
        "prompt_rollout": FunctionAgent, "emit_reward": rewards.emit, "NamedResources": dict, "Rollout": types.SimpleNamespace,
        "RolloutRawResult": Any, "Task": Any, "ProxyLLM": LLM,
    }.items():
        setattr(ours, name, value)
    sys.modules["agentlightning"] = ours
    for part in ("litagent", "types", "emitter", "reward"):
        sys.modules[f"agentlightning.{part}"] = ours
    return ours


def load(reference: str) -> Any:
    """Finds MODULE:NAME or FILE.py:NAME."""
    place, _, name = reference.rpartition(":")
    if not place or not name:
        raise SystemExit(f"{reference}: give MODULE:AGENT or FILE.py:AGENT")
    if place.endswith(".py"):
        spec = importlib.util.spec_from_file_location("agent_under_training", place)
        if spec is None or spec.loader is None or not os.path.exists(place):
            raise SystemExit(f"{place}: no such file")
        module = importlib.util.module_from_spec(spec)
        sys.path.insert(0, os.path.dirname(os.path.abspath(place)))
        sys.modules[spec.name] = module
        spec.loader.exec_module(module)
    else:
        sys.path.insert(0, os.getcwd())
        module = importlib.import_module(place)
    if not hasattr(module, name):
        raise SystemExit(f"{place} has no {name}")
    agent = getattr(module, name)
    return agent() if inspect.isclass(agent) else agent


def payload(task: dict[str, Any]) -> Any:
    """The task as the agent's dataset has it: the metadata with id and input."""
    metadata = task.get("metadata") or {}
    return {**metadata, "id": task["id"], "input": task["input"]}


def resources(package: types.ModuleType, task: dict[str, Any]) -> dict[str, Any]:
    found: dict[str, Any] = {
        "main_llm": package.LLM(
            endpoint=os.environ["OPENAI_BASE_URL"],
            model=os.environ.get("OPENAI_MODEL_NAME", "fulgurite"),
            api_key=os.environ["OPENAI_API_KEY"],
            sampling_parameters={},
        )
    }
    template = (task.get("metadata") or {}).get("prompt_template")
    if template:
        found["prompt_template"] = package.PromptTemplate(template=template, engine="f-string")
    return found


def run(agent: Any, task: Any, found: dict[str, Any]) -> Any:
    rollout = types.SimpleNamespace(
        rollout_id=os.environ.get("FULGURITE_ROLLOUT", ""), mode="train", input=task, resources_id="fulgurite", metadata={},
    )
    if agent.is_async():
        return asyncio.run(agent.training_rollout_async(task, found, rollout))
    return agent.training_rollout(task, found, rollout)


def main() -> None:
    if len(sys.argv) != 2:
        raise SystemExit("usage: fulgurite_agl.py MODULE:AGENT")
    package = namespace()
    agent = load(sys.argv[1])
    task = json.loads(sys.stdin.read() or os.environ["FULGURITE_TASK"])
    result = run(agent, payload(task), resources(package, task))
    if isinstance(result, (int, float)) and not isinstance(result, bool):
        rewards.final = float(result)
    rewards.post_all()
    print(rewards.final if rewards.final is not None else "")


if __name__ == "__main__":
    main()
