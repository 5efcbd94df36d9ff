"""An assistant with a calculator that answers questions in words."""

import ast
import asyncio
import json
import operator
import sys

from autogen_agentchat.agents import AssistantAgent
from autogen_ext.models.openai import OpenAIChatCompletionClient

OPERATORS = {ast.Add: operator.add, ast.Sub: operator.sub, ast.Mult: operator.mul, ast.Div: operator.truediv}


def value(node: ast.AST) -> float:
    match node:
        case ast.Expression(body=body):
            return value(body)
        case ast.Constant(value=int() | float() as number):
            return number
        case ast.BinOp(left=left, op=op, right=right) if type(op) in OPERATORS:
            return OPERATORS[type(op)](value(left), value(right))
        case ast.UnaryOp(op=ast.USub(), operand=operand):
            return -value(operand)
    raise SyntaxError("only numbers, +, -, *, / and parentheses")


async def calculator(expression: str) -> str:
    """Compute an arithmetic expression."""
    try:
        return f"{value(ast.parse(expression[:200], mode='eval')):.10g}"
    except (SyntaxError, ValueError, ArithmeticError, RecursionError) as error:
        return f"error: {error}"


assistant = AssistantAgent(
    name="assistant",
    model_client=OpenAIChatCompletionClient(model="gpt-4o"),
    tools=[calculator],
    system_message="Compute, then answer with the number alone.",
    max_tool_iterations=8,
)


async def main() -> None:
    task = json.load(sys.stdin)
    result = await assistant.run(task=task["input"])
    print(" ".join(result.messages[-1].to_text().split()))


if __name__ == "__main__":
    asyncio.run(main())
