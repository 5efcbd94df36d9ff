"""What the three agents of the graph are told; data.py writes its demonstrations with the same words."""

import sqlite3
from contextlib import closing

WRITER = "Write one SQLite query that answers the question."
CHECKER = "Does the query answer the question? Say yes or no."
REWRITER = "The query is wrong. Write a better one."

ROWS = 3  # of a result, that the checker and the rewriter are shown
READING = {sqlite3.SQLITE_SELECT, sqlite3.SQLITE_READ, sqlite3.SQLITE_FUNCTION, sqlite3.SQLITE_RECURSIVE}


def schema(database: str) -> str:
    """The tables of a database, one on a line."""
    with closing(sqlite3.connect(f"file:{database}?mode=ro", uri=True)) as connection:
        tables = connection.execute("SELECT name FROM sqlite_master WHERE type = 'table' ORDER BY name").fetchall()
        lines = []
        for (table,) in tables:
            columns = [row[1] for row in connection.execute(f'PRAGMA table_info("{table}")')]
            lines.append(f"{table}({', '.join(columns)})")
    return "\n".join(lines)


def run(database: str, query: str) -> str:
    """The first rows that a query returns, or SQLite's error."""
    try:
        with closing(sqlite3.connect(f"file:{database}?mode=ro", uri=True)) as connection:
            connection.set_authorizer(lambda action, *_: sqlite3.SQLITE_OK if action in READING else sqlite3.SQLITE_DENY)
            steps = iter(range(1000))
            connection.set_progress_handler(lambda: next(steps, None) is None, 10_000)  # a query may never end
            rows = connection.execute(query).fetchmany(ROWS)
    except (sqlite3.Error, sqlite3.Warning, ValueError) as error:
        return f"error: {error}"[:80]
    return "; ".join(", ".join(str(value)[:20] for value in row) for row in rows) or "no rows"


def written(schema: str, question: str) -> list[tuple[str, str]]:
    return [("system", f"{WRITER}\n{schema}"), ("user", question)]


def checked(question: str, query: str, result: str) -> list[tuple[str, str]]:
    return [("system", CHECKER), ("user", f"{question}\n{query}\n{result}")]


def rewritten(schema: str, question: str, query: str, result: str) -> list[tuple[str, str]]:
    return [("system", f"{REWRITER}\n{schema}"), ("user", f"{question}\n{query}\n{result}")]
