"""An agent with a calculator."""

import ast
import json
import operator
import sys

from langchain.agents import create_agent
from langchain_core.tools import tool
from langchain_openai import ChatOpenAI

OPERATORS = {ast.Add: operator.add, ast.Sub: operator.sub, ast.Mult: operator.mul}


def value(node: ast.AST) -> int:
    match node:
        case ast.Expression(body=body):
            return value(body)
        case ast.Constant(value=int(number)):
            return number
        case ast.BinOp(left=left, op=op, right=right) if type(op) in OPERATORS:
            return OPERATORS[type(op)](value(left), value(right))
    raise SyntaxError("only whole numbers, +, - and *")


@tool
def calculator(expression: str) -> str:
    """Compute an arithmetic expression."""
    try:
        return str(value(ast.parse(expression, mode="eval")))
    except (SyntaxError, ValueError, RecursionError):
        return "error"


agent = create_agent(ChatOpenAI(model="gpt-4o-mini"), tools=[calculator])

if __name__ == "__main__":
    task = json.load(sys.stdin)
    state = agent.invoke({"messages": [{"role": "user", "content": task["input"]}]})
    print(state["messages"][-1].text)
