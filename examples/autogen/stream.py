"""The same assistant, its tokens streamed."""

import asyncio
import json
import sys

from autogen_agentchat.messages import ModelClientStreamingChunkEvent, TextMessage

from agent import assistant


async def main() -> None:
    task = json.load(sys.stdin)
    pieces, answer = "", ""
    async for message in assistant(stream=True).run_stream(task=task["input"]):
        if isinstance(message, ModelClientStreamingChunkEvent):
            pieces += message.content
        if isinstance(message, TextMessage) and message.source == "assistant":
            answer = message.content
    assert pieces == answer, pieces
    print(answer)


if __name__ == "__main__":
    asyncio.run(main())
