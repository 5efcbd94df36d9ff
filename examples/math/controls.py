"""Prompts for one call of the model without a calculator, and the reading of its reply (../recipe/control.py).

Number 0 is the agent's own prompt.
"""

EXAMPLE = """Question: A shop sells 3 boxes of 24 cups and 15 single cups. Each cup costs $2. How much does the shop take?
Answer: The boxes have 3 * 24 = 72 cups. With the single ones these are 72 + 15 = 87 cups. They bring 87 * 2 = 174 dollars.
#### 174
"""

# What the system says and what the user says.
PROMPTS = [
    ("Compute, then answer with the number alone.", "{question}"),
    ("", "{question}"),
    ("Solve the problem step by step. End with a line: #### and the number.", "{question}"),
    ("Please reason step by step, and put your final answer within \\boxed{{}}.", "{question}"),
    ("You solve problems in words.", EXAMPLE + "\nQuestion: {question}\nAnswer:"),
]


def messages(number: int, task: dict) -> list[tuple[str, str]]:
    said = zip(("system", "user"), PROMPTS[number], strict=True)
    return [(role, text.format(question=task["input"])) for role, text in said if text]


def answer(reply: str) -> str:
    """The reply on one line: the grader finds the number after ####, in the box, or the last one."""
    return " ".join(reply.split())
