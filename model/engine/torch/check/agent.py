"""Asks the model once and prints what it says."""

import json
import os
import sys
import urllib.request

question = json.load(sys.stdin)["input"]
request = urllib.request.Request(
    os.environ["OPENAI_BASE_URL"] + "/chat/completions",
    json.dumps({"model": "m", "messages": [{"role": "user", "content": question}]}).encode(),
    {"Content-Type": "application/json", "Authorization": "Bearer " + os.environ["OPENAI_API_KEY"]},
)
with urllib.request.urlopen(request, timeout=600) as reply:
    print(json.load(reply)["choices"][0]["message"]["content"])
