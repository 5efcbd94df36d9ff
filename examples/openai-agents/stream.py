"""The same agents, their events streamed."""

import asyncio
import json
import sys

from agents import Runner

from agent import triage


async def main() -> None:
    task = json.load(sys.stdin)
    result = Runner.run_streamed(triage, task["input"])
    text = ""
    async for event in result.stream_events():
        if event.type == "raw_response_event" and event.data.type == "response.output_text.delta":
            text += event.data.delta
    assert text == result.final_output, text
    print(result.last_agent.name + ": " + text)


if __name__ == "__main__":
    asyncio.run(main())
