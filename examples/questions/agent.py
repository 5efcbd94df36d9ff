"""An agent that answers questions with a search over MCP, at the address in SEARCH_URL."""

import asyncio
import json
import os
import sys

from agents import Agent, Runner
from agents.mcp import MCPServerStreamableHttp


async def main() -> None:
    task = json.load(sys.stdin)
    search = MCPServerStreamableHttp(name="search", params={"url": os.environ["SEARCH_URL"]}, client_session_timeout_seconds=60)
    async with search as server:
        agent = Agent(name="answerer", instructions="Search, then answer in few words.", mcp_servers=[server])
        result = await Runner.run(agent, task["input"])
    print(" ".join(str(result.final_output).split()))


if __name__ == "__main__":
    asyncio.run(main())
