"""Has its model write shell commands, one at a time, runs them where the task is and shows the model what they print. A reply
"done", or the third command, ends it. It needs nothing but Python's own library."""

import json
import os
import subprocess
import sys
import urllib.request

COMMANDS = 3
messages = [{"role": "user", "content": json.load(sys.stdin)["input"].strip()}]
# A program that runs its arguments in the task's environment, be that a container or a directory.
place = [os.environ["FULGURITE_EXEC"]] if "FULGURITE_EXEC" in os.environ else []


def ask() -> str:
    request = urllib.request.Request(
        os.environ["OPENAI_BASE_URL"] + "/chat/completions",
        json.dumps({"model": "gpt-4o-mini", "messages": messages}).encode(),
        {"Content-Type": "application/json", "Authorization": "Bearer " + os.environ["OPENAI_API_KEY"]},
    )
    with urllib.request.urlopen(request) as reply:
        return json.load(reply)["choices"][0]["message"]["content"].replace("\0", "").strip()


for _ in range(COMMANDS):
    command = ask()
    if command == "done":
        break
    ran = subprocess.run([*place, "bash", "-c", command], stdin=subprocess.DEVNULL, capture_output=True, timeout=30)
    printed = (ran.stdout + ran.stderr).decode(errors="replace").strip()[:60] or "ok"
    messages += [{"role": "assistant", "content": command}, {"role": "user", "content": printed}]
    print(f"$ {command}\n{printed}")
