"""A LlamaIndex agent with a tool."""

import asyncio
import json
import sys

from llama_index.core.agent.workflow import FunctionAgent
from llama_index.llms.openai import OpenAI


def temperature(city: str) -> str:
    """The temperature in a city."""
    return "21"


agent = FunctionAgent(
    llm=OpenAI(model="gpt-4o-mini"),
    tools=[temperature],
    system_prompt="Talk about the weather.",
)


async def main() -> None:
    task = json.load(sys.stdin)
    print(await agent.run(task["input"]))


if __name__ == "__main__":
    asyncio.run(main())
