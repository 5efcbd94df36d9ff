"""The same graph, its tokens shown as they come."""

import json
import sys

from agent import app

if __name__ == "__main__":
    task = json.load(sys.stdin)
    draft = ""
    for chunk, metadata in app.stream({"topic": task["input"]}, stream_mode="messages"):
        print(metadata["langgraph_node"], repr(chunk.text), file=sys.stderr)
        if metadata["langgraph_node"] == "rewriter":
            draft += chunk.text
    print(draft)
