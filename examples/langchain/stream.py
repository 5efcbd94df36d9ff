"""The same agent, its messages streamed."""

import json
import sys

from agent import agent

if __name__ == "__main__":
    task = json.load(sys.stdin)
    answer = ""
    question = {"messages": [{"role": "user", "content": task["input"]}]}
    for chunk, metadata in agent.stream(question, stream_mode="messages"):
        if metadata["langgraph_node"] == "tools":
            answer = ""
        else:
            answer += chunk.text
    print(answer)
