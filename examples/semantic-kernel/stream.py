"""The same agent, its tokens streamed."""

import asyncio
import json
import sys

from agent import agent


async def main() -> None:
    task = json.load(sys.stdin)
    answer = ""
    async for piece in agent.invoke_stream(messages=task["input"]):
        answer += str(piece)
    print(answer)


if __name__ == "__main__":
    asyncio.run(main())
