"""Agents for Agent Lightning 0.3: a LitAgent, and a function under @rollout."""

import json
import urllib.request

from agentlightning import LLM, LitAgent, emit_reward, rollout


def ask(llm: LLM, text: str) -> str:
    request = urllib.request.Request(
        llm.endpoint + "/chat/completions",
        data=json.dumps({"model": llm.model, "messages": [{"role": "user", "content": text}]}).encode(),
        headers={"Authorization": f"Bearer {llm.api_key}", "Content-Type": "application/json"},
    )
    with urllib.request.urlopen(request) as reply:
        return json.load(reply)["choices"][0]["message"]["content"]


def share_of_letters(text: str) -> float:
    return sum(c.isalpha() for c in text) / max(len(text), 1)


class Writer(LitAgent):
    def rollout(self, task, resources, rollout):
        return share_of_letters(ask(resources["main_llm"], task["input"]))


@rollout
def writer(task, llm: LLM):
    emit_reward(share_of_letters(ask(llm, task["input"])))
