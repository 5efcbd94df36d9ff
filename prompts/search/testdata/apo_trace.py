"""Records what Agent Lightning's APO decides, for TestAPODecidesAsAgentLightning.

    python3 -m venv venv && venv/bin/pip install agentlightning==0.3.0
    venv/bin/python apo_trace.py > apo.json

The store is Agent Lightning's own, in memory. Its rollouts are finished by a script as soon
as they are enqueued, with a reward on a span, and the OpenAI client is a script, so nothing
leaves this process. Instead of poml, which turns the attempts into the text of a request, a
function hands them to that script: texts decide nothing. Rewards are multiples of 1/8, whose
sums are exact in every order. The module random, from which APO draws, is replaced by one
that keeps a record of its draws.
"""

import asyncio
import json
import logging
import random
import sys
import types
from importlib.metadata import version

# seed, train tasks, validation tasks, beam, branch, rounds, gradient batch, validation batch
CASES = [
    (1, 30, 40, 4, 4, 3, 4, 16),
    (2, 9, 11, 4, 4, 3, 4, 16),
    (3, 4, 16, 3, 2, 5, 4, 6),
    (4, 3, 7, 2, 3, 6, 4, 5),
    (5, 50, 60, 4, 4, 3, 4, 16),
    (6, 13, 10, 1, 4, 6, 5, 3),
    (7, 22, 30, 8, 2, 4, 3, 8),
]


class Recorder(random.Random):
    draws = []

    def _randbelow(self, n):
        value = int(super().random() * n)
        self.draws.append([n, value])
        return value

    def sample(self, population, k, *, counts=None):
        pool, out = list(population), []
        for left in range(len(pool), len(pool) - k, -1):
            j = self._randbelow(left)
            out.append(pool[j])
            pool[j] = pool[left - 1]
        return out


class World:
    """Texts have a hidden level for each task. A new text moves some levels of its parent
    up or down."""

    def __init__(self, seed, train, validation):
        self.random = random.Random(1000 + seed)
        self.tasks = [("train", i) for i in range(train)] + [("validation", i) for i in range(validation)]
        self.levels = {"t0": {t: self.random.choice([0, 1, 2, 3]) for t in self.tasks}}

    def propose(self, parent):
        text = f"t{len(self.levels)}"
        gain = self.random.choice([-1, 0, 1, 1, 2])
        self.levels[text] = {
            t: max(0, min(7, level + (gain if self.random.random() < 0.5 else 0)))
            for t, level in self.levels[parent].items()
        }
        return text


def make_store(world, events):
    from agentlightning.semconv import AGL_ANNOTATION
    from agentlightning.store.memory import InMemoryLightningStore
    from agentlightning.types import OtelResource, Span, SpanContext, TraceStatus

    class Store(InMemoryLightningStore):
        async def update_resources(self, resources_id, resources):
            (prompt,) = resources.values()
            events.append({"evaluate": prompt.template, "split": "", "tasks": [], "eighths": []})
            return await super().update_resources(resources_id, resources)

        async def enqueue_rollout(self, input, mode=None, resources_id=None, **more):
            rollout = await super().enqueue_rollout(input=input, mode=mode, resources_id=resources_id, **more)
            attempted = await self.dequeue_rollout()
            assert attempted is not None and attempted.rollout_id == rollout.rollout_id
            split, task = input["split"], input["task"]
            eighths = world.levels[events[-1]["evaluate"]][(split, task)]
            events[-1]["split"] = split
            events[-1]["tasks"].append(task)
            events[-1]["eighths"].append(eighths)
            attempt = attempted.attempt.attempt_id
            await self.add_span(span(rollout.rollout_id, attempt, task, eighths / 8))
            await self.update_attempt(rollout.rollout_id, attempt, status="succeeded")
            return rollout

    def span(rollout, attempt, task, reward):
        trace_id, span_id = "0" * 31 + "1", "0" * 15 + "1"
        return Span(
            rollout_id=rollout, attempt_id=attempt, sequence_id=1, trace_id=trace_id, span_id=span_id, parent_id=None,
            name=AGL_ANNOTATION, status=TraceStatus(status_code="OK"), attributes={"reward": reward, "task": task},
            events=[], links=[], start_time=0.0, end_time=1.0, parent=None,
            context=SpanContext(trace_id=trace_id, span_id=span_id, is_remote=False, trace_state={}),
            resource=OtelResource(attributes={}, schema_url=""),
        )

    return Store()


def make_adapter():
    from agentlightning.adapter.messages import TraceToMessages

    class Tasks(TraceToMessages):
        def adapt(self, source, /):
            return [{"task": s.attributes["task"]} for s in source]

    return Tasks()


def poml(template, context, format):
    return {"messages": {"template": template.name, **context}}


class Completions:
    def __init__(self, world, events, seed):
        self.world, self.events = world, events
        self.random = random.Random(2000 + seed)
        self.critiques = 0

    async def create(self, model, messages, temperature):
        variant = int(messages["template"].split("variant")[1].split(".")[0]) - 1
        prompt = messages["prompt_template"]
        if "experiments" in messages:
            self.critiques += 1
            text = f"critique {self.critiques}"
            shown = [e["messages"][0]["task"] for e in messages["experiments"]]
            self.events.append({"critique": prompt, "variant": variant, "shown": shown, "reply": text})
        else:
            text = "" if self.random.random() < 0.1 else self.world.propose(prompt)
            self.events.append({"edit": prompt, "variant": variant, "after": messages["critique"], "reply": text})
        message = types.SimpleNamespace(content=text)
        return types.SimpleNamespace(choices=[types.SimpleNamespace(message=message)])


async def trace(seed, train, validation, beam, branch, rounds, gradient_batch, validation_batch):
    from agentlightning.algorithm.apo import APO
    from agentlightning.types import PromptTemplate

    world, events = World(seed, train, validation), []

    class Recorded(APO):
        async def _evaluate_and_select_beam(self, *args):
            kept = await super()._evaluate_and_select_beam(*args)
            events.append({"beam": [p.prompt_template.template for p in kept], "eighths": [p.score * 8 for p in kept]})
            return kept

        async def _update_best_prompt(self, *args):
            await super()._update_best_prompt(*args)
            events.append({"best": self._history_best_prompt.template, "score": self._history_best_score})

    client = types.SimpleNamespace(chat=types.SimpleNamespace(completions=Completions(world, events, seed)))
    apo = Recorded(
        client, gradient_batch_size=gradient_batch, val_batch_size=validation_batch,
        beam_width=beam, branch_factor=branch, beam_rounds=rounds,
    )
    adapter = make_adapter()
    apo.set_adapter(adapter)
    apo.set_store(make_store(world, events))
    apo.set_initial_resources({"prompt": PromptTemplate(template="t0", engine="f-string")})
    Recorder.draws = []
    datasets = {s: [{"split": s, "task": i} for t, i in world.tasks if t == s] for s in ("train", "validation")}
    await apo.run(train_dataset=datasets["train"], val_dataset=datasets["validation"])
    return {
        "seed": seed, "train": train, "validation": validation, "beam": beam, "branch": branch, "rounds": rounds,
        "gradient_batch": gradient_batch, "validation_batch": validation_batch,
        "draws": Recorder.draws, "events": events, "best": apo.get_best_prompt().template,
    }


def main():
    logging.disable(logging.CRITICAL)
    sys.modules["poml"] = types.SimpleNamespace(poml=poml)
    import agentlightning.algorithm.apo.apo
    import agentlightning.algorithm.utils

    assert version("agentlightning") == "0.3.0", version("agentlightning")
    cases = []
    for case in CASES:
        recorder = Recorder(case[0])
        agentlightning.algorithm.apo.apo.random = recorder
        agentlightning.algorithm.utils.random = recorder
        cases.append(asyncio.run(trace(*case)))
    json.dump({"agentlightning": version("agentlightning"), "cases": cases}, sys.stdout, separators=(",", ":"))
    sys.stdout.write("\n")


main()
