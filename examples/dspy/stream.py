"""The same program, its answer streamed."""

import asyncio
import json
import sys

import dspy

from agent import answer

talk = dspy.streamify(
    answer,
    stream_listeners=[dspy.streaming.StreamListener(signature_field_name="answer")],
)


async def main() -> None:
    task = json.load(sys.stdin)
    async for piece in talk(question=task["input"]):
        if isinstance(piece, dspy.Prediction):
            print(piece.answer)


if __name__ == "__main__":
    asyncio.run(main())
