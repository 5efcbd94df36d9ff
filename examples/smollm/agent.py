"""An assistant with a calculator, as a service that runs all the time: a LangGraph of two nodes.

    agent.py [PORT]    answers POST /run, by default on port 8300
"""

import ast
import json
import operator
import sys
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

import httpx
from langchain_core.tools import tool
from langchain_openai import ChatOpenAI
from langgraph.graph import START, MessagesState, StateGraph
from langgraph.prebuilt import ToolNode, tools_condition

OPERATORS = {ast.Add: operator.add, ast.Sub: operator.sub, ast.Mult: operator.mul, ast.USub: operator.neg}


def value(node: ast.expr) -> int:
    match node:
        case ast.Constant(value=int() as number):
            return number
        case ast.BinOp(left, op, right) if type(op) in OPERATORS:
            return OPERATORS[type(op)](value(left), value(right))
        case ast.UnaryOp(op, operand) if type(op) in OPERATORS:
            return OPERATORS[type(op)](value(operand))
    raise ValueError("want whole numbers, +, -, * and parentheses")


@tool
def calculator(expression: str) -> str:
    """Compute an expression of whole numbers, such as (3+4)*5."""
    try:
        return str(value(ast.parse(expression[:100], mode="eval").body))
    except (SyntaxError, ValueError) as error:
        return f"error: {error}"


def ask(state: MessagesState, config) -> dict:
    return {"messages": config["configurable"]["model"].invoke(state["messages"])}


graph = StateGraph(MessagesState)
graph.add_node("ask", ask)
graph.add_node("tools", ToolNode([calculator]))
graph.add_edge(START, "ask")
graph.add_conditional_edges("ask", tools_condition)
graph.add_edge("tools", "ask")
app = graph.compile()

connections = httpx.Client(limits=httpx.Limits(max_connections=None), timeout=600)


class Service(BaseHTTPRequestHandler):
    def do_POST(self):
        task = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
        model = ChatOpenAI(
            model=task["model"], base_url=task["base_url"], api_key=task["api_key"], http_client=connections, max_retries=0
        ).bind_tools([calculator])
        try:
            state = app.invoke({"messages": [("user", task["input"])]}, {"configurable": {"model": model}, "recursion_limit": 8})
            status, answer = 200, state["messages"][-1].text.strip()
        except Exception as error:  # told to the worker, which counts it against this attempt alone
            status, answer = 500, f"{type(error).__name__}: {error}"
        body = answer.encode()
        self.send_response(status)
        self.send_header("Content-Type", "text/plain; charset=utf-8")
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, *arguments):
        pass


class Server(ThreadingHTTPServer):
    request_queue_size = 256  # a step's attempts come at once


if __name__ == "__main__":
    Server(("127.0.0.1", int(sys.argv[1]) if len(sys.argv) > 1 else 8300), Service).serve_forever()
