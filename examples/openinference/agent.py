"""A graph of a writer, a checker with a tool, and a rewriter.

It says nothing of traces: `opentelemetry-instrument` starts it, and the variables that
the worker sets say where its spans go.
"""

import json
import sys
from typing import Annotated, TypedDict

from langchain_core.messages import AnyMessage
from langchain_core.tools import tool
from langchain_openai import ChatOpenAI
from langgraph.graph import END, START, StateGraph
from langgraph.graph.message import add_messages
from langgraph.prebuilt import ToolNode, tools_condition


@tool
def count(text: str) -> str:
    """Count the words of a text."""
    words = len(text.split())
    if words > 5:
        raise ValueError("more than five words")
    return str(words)


class State(TypedDict):
    topic: str
    draft: str
    messages: Annotated[list[AnyMessage], add_messages]


llm = ChatOpenAI(model="gpt-4o-mini")
counting = llm.bind_tools([count])


def writer(state: State) -> dict:
    draft = llm.invoke([("system", "Write a line about the topic."), ("user", state["topic"])]).text
    return {"draft": draft, "messages": [("system", "Count the words, then say whether the line is good."), ("user", draft)]}


def checker(state: State) -> dict:
    return {"messages": [counting.invoke(state["messages"])]}


def rewriter(state: State) -> dict:
    return {"draft": llm.invoke([("system", "Write this line better."), ("user", state["draft"])]).text}


graph = StateGraph(State)
graph.add_node("writer", writer)
graph.add_node("checker", checker)
graph.add_node("tools", ToolNode([count], handle_tool_errors=True))
graph.add_node("rewriter", rewriter)
graph.add_edge(START, "writer")
graph.add_edge("writer", "checker")
graph.add_conditional_edges("checker", tools_condition, {"tools": "tools", END: "rewriter"})
graph.add_edge("tools", "checker")
graph.add_edge("rewriter", END)
app = graph.compile()

if __name__ == "__main__":
    task = json.load(sys.stdin)
    print(app.invoke({"topic": task["input"]})["draft"])
