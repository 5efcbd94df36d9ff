"""An agent of a crew, its tokens streamed."""

import json
import sys

from crewai import LLM, Agent, Crew, Task

writer = Agent(
    role="writer",
    goal="Write clearly.",
    backstory="You like short lines.",
    llm=LLM(model="openai/gpt-4o-mini", stream=True),
)
write = Task(description="Write a line about {topic}.", expected_output="A line.", agent=writer)

if __name__ == "__main__":
    task = json.load(sys.stdin)
    print(Crew(agents=[writer], tasks=[write]).kickoff(inputs={"topic": task["input"]}).raw)
