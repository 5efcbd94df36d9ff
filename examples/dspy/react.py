"""A DSPy agent with a tool."""

import json
import sys

import dspy

dspy.configure(lm=dspy.LM("openai/gpt-4o-mini", cache=False))


def temperature(city: str) -> str:
    """The temperature in a city."""
    return "21"


answer = dspy.ReAct("question -> answer", tools=[temperature], max_iters=3)

if __name__ == "__main__":
    task = json.load(sys.stdin)
    print(answer(question=task["input"]).answer)
