"""An agent that uses a function and answers in a form."""

import json
import sys

from agents import Agent, Runner, function_tool
from pydantic import BaseModel


class Weather(BaseModel):
    city: str
    degrees: int


@function_tool
def temperature(city: str) -> str:
    """The temperature in a city."""
    return "21"


agent = Agent(name="weather", tools=[temperature], output_type=Weather)

if __name__ == "__main__":
    task = json.load(sys.stdin)
    weather = Runner.run_sync(agent, task["input"]).final_output
    print(f"{weather.degrees} degrees in {weather.city}")
