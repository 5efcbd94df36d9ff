"""A triage agent hands a greeting over to an agent that speaks its language."""

import json
import sys

from agents import Agent, Runner

spanish = Agent(name="es", instructions="Answer in Spanish.")
english = Agent(name="en", instructions="Answer in English.")
triage = Agent(
    name="triage",
    instructions="Hand over to the agent of the right language.",
    handoffs=[spanish, english],
)

if __name__ == "__main__":
    task = json.load(sys.stdin)
    result = Runner.run_sync(triage, task["input"])
    print(result.last_agent.name + ": " + " ".join(result.final_output.split()))
