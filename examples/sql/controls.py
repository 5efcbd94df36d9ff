"""Ten prompts for one call of the untrained model, and the reading of its query without the prose around it (../recipe/control.py).

Number 0 is the writer's own prompt.
"""

import re

import prompts

EXAMPLE = """Tables:
ships(id, name, built, port_id)
ports(id, name, country)
Question: Which ships built after 1990 lie in Norwegian ports?
SQL: SELECT ships.name FROM ships JOIN ports ON ships.port_id = ports.id WHERE ships.built > 1990 AND ports.country = 'Norway'
"""

# What the system says and what the user says; {schema} has one table on a line, {question} is the task's.
PROMPTS = [
    (prompts.WRITER + "\n{schema}", "{question}"),
    (prompts.WRITER + " Reply with the query alone, on one line, without explanation.\n{schema}", "{question}"),
    ("You are an expert in SQLite. Answer with one SELECT statement and nothing else.", "Tables:\n{schema}\n\nQuestion: {question}"),
    ("", "Tables:\n{schema}\n\nQuestion: {question}\nSQL:"),
    ("You translate questions into SQLite.", EXAMPLE + "\nTables:\n{schema}\nQuestion: {question}\nSQL:"),
    (
        "Write one SQLite query. Use only tables and columns of the schema, with their exact names. Join tables only if it is needed. "
        "Return exactly the columns that are asked for, in the order of the question, and no others.\n{schema}",
        "{question}",
    ),
    ("Schema of a SQLite database:\n{schema}\nAnswer each question with a query inside ```sql.", "{question}"),
    ("", "-- SQLite\n-- {schema_comment}\n-- {question}\n-- The query is:"),
    (
        "Think about which tables and columns the question needs, then write the SQLite query in a code block. Keep it as simple as possible.\n{schema}",
        "{question}",
    ),
    ("You are a careful data analyst. Write the simplest correct SQLite query. No aliases, no extra columns.", "{schema}\n\n{question}"),
]


def messages(number: int, task: dict) -> list[tuple[str, str]]:
    schema, question = prompts.schema(task["metadata"]["database"]), task["input"]
    system, user = (
        text.format(schema=schema, question=question, schema_comment=schema.replace("\n", "\n-- ")) for text in PROMPTS[number]
    )
    return [(role, text) for role, text in [("system", system), ("user", user)] if text]


def answer(reply: str) -> str:
    """The first fenced block, or what follows from the first SELECT or WITH to a semicolon outside of quotes or a blank line; on one line."""
    fence = re.search(r"```(?:\w+\n|\n)?(.*?)(?:```|\Z)", reply, re.DOTALL)
    text = fence.group(1) if fence else reply
    found = re.search(r"""\b(?:SELECT|WITH)\b(?:'[^']*'|"[^"]*"|`[^`]*`|(?!\n\s*\n)[^;])*""", text, re.IGNORECASE)
    return " ".join((found.group() if found else text).split())
