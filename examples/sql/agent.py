"""A writer of SQL queries, a checker and a rewriter: three nodes, each a call of the model.

It says nothing of training: `opentelemetry-instrument` starts it, so that each call is known by its node.
"""

import json
import sys
from typing import TypedDict

from langchain_openai import ChatOpenAI
from langgraph.graph import END, START, StateGraph

import prompts

llm = ChatOpenAI(model="gpt-4o-mini")


class State(TypedDict):
    database: str
    question: str
    query: str
    result: str
    verdict: str


def on_one_line(text: str) -> str:
    return " ".join(text.split())


def writer(state: State) -> dict:
    schema = prompts.schema(state["database"])
    return {"query": on_one_line(llm.invoke(prompts.written(schema, state["question"])).text)}


def checker(state: State) -> dict:
    result = prompts.run(state["database"], state["query"])
    return {"result": result, "verdict": llm.invoke(prompts.checked(state["question"], state["query"], result)).text}


def rewriter(state: State) -> dict:
    schema = prompts.schema(state["database"])
    messages = prompts.rewritten(schema, state["question"], state["query"], state["result"])
    return {"query": on_one_line(llm.invoke(messages).text)}


def right(state: State) -> str:
    return END if state["verdict"].strip().lower().startswith("yes") else "rewriter"


graph = StateGraph(State)
graph.add_node("writer", writer)
graph.add_node("checker", checker)
graph.add_node("rewriter", rewriter)
graph.add_edge(START, "writer")
graph.add_edge("writer", "checker")
graph.add_conditional_edges("checker", right, ["rewriter", END])
graph.add_edge("rewriter", END)
app = graph.compile()

if __name__ == "__main__":
    task = json.load(sys.stdin)
    print(app.invoke({"database": task["metadata"]["database"], "question": task["input"]})["query"])
