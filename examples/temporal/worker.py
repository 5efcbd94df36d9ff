"""A Temporal worker with an agent: a workflow that has one activity write a line and another improve it."""

import asyncio
import os
import signal
from datetime import timedelta

from temporalio import activity, workflow
from temporalio.client import Client
from temporalio.common import RetryPolicy
from temporalio.worker import Worker

with workflow.unsafe.imports_passed_through():
    from openai import AsyncOpenAI

QUEUE = "lines"


@activity.defn
async def ask(job: dict, question: str) -> str:
    """Ask the model of this job. Its address and key are in the job, and belong to it alone."""
    async with AsyncOpenAI(base_url=job["base_url"], api_key=job["api_key"]) as model:
        reply = await model.chat.completions.create(model=job["model"], messages=[{"role": "user", "content": question}])
        return reply.choices[0].message.content or ""


@workflow.defn
class Lines:
    @workflow.run
    async def run(self, job: dict) -> str:
        line = await self.ask(job, f"Write a line about {job['input']}.")
        return await self.ask(job, f"Write this line better: {line}")

    async def ask(self, job: dict, question: str) -> str:
        return await workflow.execute_activity(
            ask,
            args=[job, question],
            start_to_close_timeout=timedelta(minutes=2),
            retry_policy=RetryPolicy(maximum_attempts=1),  # the run makes the attempt again
        )


async def main() -> None:
    client = await Client.connect(os.environ.get("TEMPORAL_ADDRESS", "127.0.0.1:7233"))
    ended = asyncio.Event()
    for sign in (signal.SIGINT, signal.SIGTERM):
        asyncio.get_running_loop().add_signal_handler(sign, ended.set)
    async with Worker(client, task_queue=QUEUE, workflows=[Lines], activities=[ask]):
        print("polls", QUEUE, flush=True)
        await ended.wait()


if __name__ == "__main__":
    asyncio.run(main())
