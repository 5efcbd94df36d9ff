"""Asks the model once, with a prompt written by hand, and prints what a few lines of Python read from its reply.

    control.py FOLDER NUMBER

It is a control: what training is worth must be measured against the best that words and a script get out of the untrained model. The module
controls of FOLDER has the prompts and the reading: messages(NUMBER, task) and answer(reply). Only Python's own modules are used, so an
attempt costs nothing.
"""

import json
import os
import sys
import urllib.request


def main(folder: str, number: int) -> None:
    sys.path.insert(0, folder)
    import controls

    body = {"model": "m", "messages": [{"role": role, "content": text} for role, text in controls.messages(number, json.load(sys.stdin))]}
    request = urllib.request.Request(
        os.environ["OPENAI_BASE_URL"] + "/chat/completions",
        json.dumps(body).encode(),
        {"Content-Type": "application/json", "Authorization": "Bearer " + os.environ["OPENAI_API_KEY"]},
    )
    with urllib.request.urlopen(request) as answer:
        print(controls.answer(json.load(answer)["choices"][0]["message"]["content"] or ""))


if __name__ == "__main__":
    main(sys.argv[1], int(sys.argv[2]))
