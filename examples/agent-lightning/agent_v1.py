"""An agent for Agent Lightning 1.0: three environment variables and one POST.

It imports nothing of Agent Lightning, and nothing of Fulgurite.
"""

import json
import os
import urllib.request


def post(url: str, body: dict) -> dict:
    request = urllib.request.Request(
        url,
        data=json.dumps(body).encode(),
        headers={"Authorization": f"Bearer {os.environ['AGL_KEY']}", "Content-Type": "application/json"},
    )
    with urllib.request.urlopen(request) as reply:
        return json.load(reply)


task = json.loads(os.environ["AGL_TASK_INPUT"])
reply = post(
    os.environ["AGL_OPENAI_BASE_URL"] + "/chat/completions",
    {"model": "policy", "messages": [{"role": "user", "content": task["input"]}]},
)
text = reply["choices"][0]["message"]["content"]
letters = sum(c.isalpha() for c in text) / max(len(text), 1)
post(os.environ["AGL_EVENT_URL"], {"event_type": "reward", "data": {"value": letters, "reason": "share of letters"}})
print(text)
