"""An agent of Semantic Kernel with a function."""

import asyncio
import json
import sys
from typing import Annotated

from semantic_kernel.agents import ChatCompletionAgent
from semantic_kernel.connectors.ai.open_ai import OpenAIChatCompletion
from semantic_kernel.functions import kernel_function


class Weather:
    @kernel_function(description="The temperature in a city.")
    def temperature(self, city: Annotated[str, "the city"]) -> str:
        return "21"


agent = ChatCompletionAgent(
    name="weather",
    instructions="Talk about the weather.",
    service=OpenAIChatCompletion(ai_model_id="gpt-4o-mini"),
    plugins=[Weather()],
)


async def main() -> None:
    task = json.load(sys.stdin)
    print(await agent.get_response(messages=task["input"]))


if __name__ == "__main__":
    asyncio.run(main())
