"""A DSPy program that reasons before it answers."""

import json
import sys

import dspy

dspy.configure(lm=dspy.LM("openai/gpt-4o-mini", cache=False))
answer = dspy.ChainOfThought("question -> answer")

if __name__ == "__main__":
    task = json.load(sys.stdin)
    print(answer(question=task["input"]).answer)
