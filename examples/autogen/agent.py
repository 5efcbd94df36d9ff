"""An assistant with a calculator."""

import ast
import asyncio
import json
import operator
import sys

from autogen_agentchat.agents import AssistantAgent
from autogen_ext.models.openai import OpenAIChatCompletionClient

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


async def calculator(expression: str) -> str:
    """Compute an arithmetic expression."""
    try:
        return str(value(ast.parse(expression, mode="eval")))
    except (SyntaxError, ValueError, RecursionError):
        return "error"


def assistant(stream: bool = False) -> AssistantAgent:
    return AssistantAgent(
        name="assistant",
        model_client=OpenAIChatCompletionClient(model="gpt-4o"),
        tools=[calculator],
        system_message=None,
        max_tool_iterations=4,
        model_client_stream=stream,
    )


async def main() -> None:
    task = json.load(sys.stdin)
    result = await assistant().run(task=task["input"])
    print(result.messages[-1].content)


if __name__ == "__main__":
    asyncio.run(main())
