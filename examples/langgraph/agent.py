"""A writer, a checker and a rewriter: three nodes, each a call of the model."""

import json
import sys
from typing import TypedDict

from langchain_openai import ChatOpenAI
from langgraph.graph import END, START, StateGraph

llm = ChatOpenAI(model="gpt-4o-mini")


class State(TypedDict):
    topic: str
    draft: str
    verdict: str


def ask(instructions: str, text: str) -> str:
    return llm.invoke([("system", instructions), ("user", text)]).text


def write(state: State) -> dict:
    return {"draft": ask("Write a line about the topic.", state["topic"])}


def check(state: State) -> dict:
    return {"verdict": ask("Is this line good? Answer yes or no.", state["draft"])}


def rewrite(state: State) -> dict:
    return {"draft": ask("Write this line better.", state["draft"])}


def good(state: State) -> str:
    return END if state["verdict"].startswith("yes") else "rewrite"


graph = StateGraph(State)
graph.add_node("write", write)
graph.add_node("check", check)
graph.add_node("rewrite", rewrite)
graph.add_edge(START, "write")
graph.add_edge("write", "check")
graph.add_conditional_edges("check", good, ["rewrite", END])
graph.add_edge("rewrite", END)
app = graph.compile()

if __name__ == "__main__":
    task = json.load(sys.stdin)
    print(app.invoke({"topic": task["input"]})["draft"])
