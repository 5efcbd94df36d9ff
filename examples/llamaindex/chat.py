"""One answer."""

import json
import sys

from llama_index.core.llms import ChatMessage
from llama_index.llms.openai import OpenAI

if __name__ == "__main__":
    task = json.load(sys.stdin)
    answer = OpenAI(model="gpt-4o-mini").chat([ChatMessage(role="user", content=task["input"])])
    print(answer.message.content)
