"""Runs the rollouts by Agent Lightning, and prints how many a second were done.

    theirs.py STORE-URL ROLLOUTS RUNNERS

All rollouts are enqueued before the first begins, and the time is the store's own, from the first attempt's begin to the last one's end. So
neither the start of its processes counts nor how often they look for work when there is none.
"""

import asyncio
import random
import sys

import agentlightning as agl
from agentlightning.utils.otel import get_tracer
from work import work

URL, ROLLOUTS, RUNNERS = sys.argv[1], int(sys.argv[2]), int(sys.argv[3])


@agl.rollout
def agent(task: str, llm: agl.LLM) -> None:
    agl.emit_reward(work(get_tracer()))


class Measure(agl.Algorithm):
    async def run(self, train_dataset=None, val_dataset=None) -> None:
        store = self.get_store()
        await store.add_resources({"llm": agl.LLM(endpoint="http://127.0.0.1:9/v1", model="none")})
        ids = [(await store.enqueue_rollout(input=f"task {i}", mode="train")).rollout_id for i in range(ROLLOUTS)]
        done = []
        while len(done) < len(ids):
            await asyncio.sleep(1)
            done = await store.wait_for_rollouts(rollout_ids=ids, timeout=0.0)
        if any(r.status != "succeeded" for r in done):
            sys.exit("theirs.py: " + ", ".join(sorted({r.status for r in done})))
        begun, ended, spans = [], [], 0
        for rollout in done:
            attempt = await store.get_latest_attempt(rollout.rollout_id)
            begun.append(attempt.start_time)
            ended.append(attempt.end_time)
        sample = random.sample(done, 20)
        for rollout in sample:
            spans += len(await store.query_spans(rollout_id=rollout.rollout_id, attempt_id="latest"))
        print(f"{len(done) / (max(ended) - min(begun)):.2f} rollouts/s, {spans / len(sample):.1f} spans a rollout", flush=True)


if __name__ == "__main__":
    trainer = agl.Trainer(
        store=agl.LightningStoreClient(URL), algorithm=Measure(), n_runners=RUNNERS, tracer=agl.OtelTracer(), strategy=agl.ClientServerExecutionStrategy(managed_store=False)
    )
    trainer.fit(agent)
