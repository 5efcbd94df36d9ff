"""Asks its model the question and prints the answer, with nothing but Python's own library.

A task whose prompt is more than one message of a user has its messages in the metadata.
"""

import json
import os
import sys
import urllib.request

task = json.load(sys.stdin)
messages = task.get("metadata", {}).get("messages") or [{"role": "user", "content": task["input"]}]
body = {"model": "gpt-4o-mini", "messages": messages}
request = urllib.request.Request(
    os.environ["OPENAI_BASE_URL"] + "/chat/completions",
    json.dumps(body).encode(),
    {"Content-Type": "application/json", "Authorization": "Bearer " + os.environ["OPENAI_API_KEY"]},
)
with urllib.request.urlopen(request) as reply:
    print(" ".join(json.load(reply)["choices"][0]["message"]["content"].split()))
