"""Runs the APO of agentlightning 0.3.0 in synthetic worlds, for bench/prompts.

It reads a task for each search as a line of JSON and prints the best prompts of each as a line of JSON. The store is
Agent Lightning's own, in memory. A rollout is finished as soon as it is enqueued, with what the scripted model did, and
fails if the model failed. The OpenAI client is the real one and talks to the scripted reflector.

With POML=1, poml renders the questions; it takes seconds for each. Otherwise a function shows the same texts plainly. The
scripted reflector finds the prompt and the critique in both, and looks at nothing else.
"""

import asyncio
import itertools
import json
import logging
import os
import random
import sys
import types
import urllib.request
from importlib.metadata import version

os.environ["LITELLM_LOCAL_MODEL_COST_MAP"] = "True"  # else its import asks the network


class BudgetUsed(Exception):
    pass


def plainly(template, context, format):
    assert format == "openai_chat"
    parts = ["# Prompt", context["prompt_template"]]
    if "critique" in context:
        parts += ["# Critique", context["critique"]]
    for one in context.get("experiments", []):
        parts += ["# Attempt", json.dumps([one["status"], one["final_reward"], one["messages"]])]
    return {"messages": [{"role": "user", "content": "\n\n".join(parts)}]}


if os.environ.get("POML") != "1":
    sys.modules["poml"] = types.SimpleNamespace(poml=plainly)

from agentlightning.adapter.messages import TraceToMessages  # noqa: E402
from agentlightning.algorithm.apo import APO  # noqa: E402
from agentlightning.semconv import AGL_ANNOTATION  # noqa: E402
from agentlightning.store.memory import InMemoryLightningStore  # noqa: E402
from agentlightning.types import OtelResource, PromptTemplate, Span, SpanContext, TraceStatus  # noqa: E402
from openai import AsyncOpenAI  # noqa: E402


class Store(InMemoryLightningStore):
    """A store whose rollouts the scripted model has already done."""

    def __init__(self, url, budget):
        super().__init__()
        self.url, self.budget, self.rollouts, self.prompt = url, budget, 0, None

    async def update_resources(self, resources_id, resources):
        self.prompt = resources["prompt"].template
        return await super().update_resources(resources_id, resources)

    async def enqueue_rollout(self, input, *args, **more):
        if self.rollouts == self.budget:
            raise BudgetUsed
        self.rollouts += 1
        enqueued = await super().enqueue_rollout(input, *args, **more)
        begun = await self.dequeue_rollout()
        assert begun is not None and begun.rollout_id == enqueued.rollout_id
        did = self.ask({"prompt": self.prompt, **input})
        rollout, attempt = begun.rollout_id, begun.attempt.attempt_id
        if not did["failed"]:
            await self.add_span(span(rollout, attempt, did))
        await self.update_attempt(rollout, attempt, status="failed" if did["failed"] else "succeeded")
        return enqueued

    def ask(self, body):
        request = urllib.request.Request(self.url + "/attempts", json.dumps(body).encode(), {"Content-Type": "application/json"})
        with urllib.request.urlopen(request) as reply:
            return json.load(reply)


def span(rollout, attempt, did):
    trace, number = "1".zfill(32), "1".zfill(16)
    return Span(
        name=AGL_ANNOTATION, rollout_id=rollout, attempt_id=attempt, sequence_id=1, trace_id=trace, span_id=number, parent_id=None,
        status=TraceStatus(status_code="OK"), start_time=0.0, end_time=1.0, events=[], links=[], parent=None,
        attributes={"reward": did["reward"], "input": did["input"], "answer": did["answer"]},
        context=SpanContext(trace_id=trace, span_id=number, is_remote=False, trace_state={}),
        resource=OtelResource(attributes={}, schema_url=""),
    )


class Messages(TraceToMessages):
    def adapt(self, source, /):
        said = (zip(("user", "assistant"), (s.attributes["input"], s.attributes["answer"])) for s in source)
        return [{"role": role, "content": text} for role, text in itertools.chain.from_iterable(said)]


class Watched(APO):
    """APO that keeps the best prompt after each round."""

    def keep(self, prompt):
        self.history.append({"rollouts": self.get_store().rollouts, "prompt": prompt})

    async def _update_best_prompt(self, *args):
        await super()._update_best_prompt(*args)
        self.keep(self.get_best_prompt().template)


async def search(task):
    random.seed(task["seed"])
    async with AsyncOpenAI(base_url=task["url"] + "/v1", api_key="none", max_retries=0) as client:
        apo = Watched(
            client, beam_width=task["beam"], branch_factor=task["branch"], beam_rounds=task["rounds"],
            gradient_batch_size=task["gradient_batch"], val_batch_size=task["validation_batch"],
        )
        apo.history = []
        store, adapter = Store(task["url"], task["budget"]), Messages()  # it keeps only weak references
        apo.set_store(store)
        apo.set_adapter(adapter)
        apo.set_initial_resources({"prompt": PromptTemplate(template=task["prompt"], engine="f-string")})
        apo.keep(task["prompt"])

        def items(split):
            return [{"split": split, "item": i} for i in range(task[split])]

        try:
            await apo.run(train_dataset=items("train"), val_dataset=items("validation"))
        except BudgetUsed:
            pass
        apo.keep(apo.get_best_prompt().template)
        return apo.history


def main():
    logging.disable(logging.CRITICAL)
    assert version("agentlightning") == "0.3.0", version("agentlightning")
    for line in sys.stdin:
        print(json.dumps(asyncio.run(search(json.loads(line)))), flush=True)


main()
