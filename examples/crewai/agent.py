"""A crew of a researcher and an editor."""

import json
import sys

from crewai import LLM, Agent, Crew, Process, Task

llm = LLM(model="openai/gpt-4o-mini")

researcher = Agent(role="researcher", goal="Find facts.", backstory="You read a lot.", llm=llm)
editor = Agent(role="editor", goal="Write clearly.", backstory="You like short lines.", llm=llm)

research = Task(
    description="Name a fact about {topic}.",
    expected_output="A fact.",
    agent=researcher,
)
edit = Task(
    description="Write a line about {topic} from the fact.",
    expected_output="A line.",
    agent=editor,
    context=[research],
)

crew = Crew(agents=[researcher, editor], tasks=[research, edit], process=Process.sequential)

if __name__ == "__main__":
    task = json.load(sys.stdin)
    print(crew.kickoff(inputs={"topic": task["input"]}).raw)
