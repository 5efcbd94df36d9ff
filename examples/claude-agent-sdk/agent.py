"""Claude Code as an agent: it may read files."""

import asyncio
import json
import sys

from claude_agent_sdk import ClaudeAgentOptions, ResultMessage, query


async def main() -> None:
    task = json.load(sys.stdin)
    options = ClaudeAgentOptions(
        system_prompt="Answer from the files.",
        allowed_tools=["Read"],
        model="claude-sonnet-4-5",
        max_turns=4,
        setting_sources=[],
    )
    async for message in query(prompt=task["input"], options=options):
        if isinstance(message, ResultMessage):
            print(message.result)


if __name__ == "__main__":
    asyncio.run(main())
