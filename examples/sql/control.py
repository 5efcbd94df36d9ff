"""Asks the model once, with one of ten prompts, and prints its query without the prose around it.

    control.py NUMBER

Number 0 is the writer's own prompt. It is a control: what training is worth must be measured against the best that
words and a few lines of Python get out of the untrained model. Only Python's own modules are used, so an attempt costs nothing.
"""

import json
import os
import re
import sys
import urllib.request

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


def messages(number: int, schema: str, question: str) -> list[dict[str, str]]:
    system, user = (
        text.format(schema=schema, question=question, schema_comment=schema.replace("\n", "\n-- ")) for text in PROMPTS[number]
    )
    said = [("system", system)] if system else []
    return [{"role": role, "content": text} for role, text in [*said, ("user", user)]]


def query(reply: str) -> str:
    """The first fenced block, or what follows from the first SELECT or WITH to a semicolon outside of quotes or a blank line; on one line."""
    fence = re.search(r"```(?:\w+\n|\n)?(.*?)(?:```|\Z)", reply, re.DOTALL)
    text = fence.group(1) if fence else reply
    found = re.search(r"""\b(?:SELECT|WITH)\b(?:'[^']*'|"[^"]*"|`[^`]*`|(?!\n\s*\n)[^;])*""", text, re.IGNORECASE)
    return " ".join((found.group() if found else text).split())


def main() -> None:
    task = json.load(sys.stdin)
    body = {"model": "m", "messages": messages(int(sys.argv[1]), prompts.schema(task["metadata"]["database"]), task["input"])}
    request = urllib.request.Request(
        os.environ["OPENAI_BASE_URL"] + "/chat/completions",
        json.dumps(body).encode(),
        {"Content-Type": "application/json", "Authorization": "Bearer " + os.environ["OPENAI_API_KEY"]},
    )
    with urllib.request.urlopen(request) as answer:
        print(query(json.load(answer)["choices"][0]["message"]["content"] or ""))


if __name__ == "__main__":
    main()
