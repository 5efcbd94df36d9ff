"""A grader of the agents of the graph: the query for all of them, and for the checker whether its verdict was right.

It reads the task, the result and the calls of an attempt, and prints the rewards as its last line (grader.rewards of the
spec). A query is right if it returns the rows of the task's answer, in any order, as BIRD compares them.
"""

import json
import sqlite3
import sys
from contextlib import closing

import prompts

LIMIT = 10_000  # times 10,000 steps of SQLite; a query may never end


def rows(database: str, query: str) -> set | None:
    """The rows that a query returns; None if it fails."""
    try:
        with closing(sqlite3.connect(f"file:{database}?mode=ro", uri=True)) as connection:
            connection.set_authorizer(lambda action, *_: sqlite3.SQLITE_OK if action in prompts.READING else sqlite3.SQLITE_DENY)
            steps = iter(range(LIMIT))
            connection.set_progress_handler(lambda: next(steps, None) is None, 10_000)
            return set(connection.execute(query).fetchall())
    except (sqlite3.Error, sqlite3.Warning, ValueError):
        return None


def verdicts(calls: list[dict]) -> list[tuple[str, bool]]:
    """Each query that the checker was asked about, and whether it said yes."""
    found = []
    for call in calls:
        said = call["request"]["messages"]
        if said[0]["content"] != prompts.CHECKER:
            continue
        # The question may have several lines; the query and its result are one line each.
        query = said[1]["content"].split("\n")[-2]
        reply = call["response"]["choices"][0]["message"]["content"] or ""
        found.append((query, reply.strip().lower().startswith("yes")))
    return found


def grade(attempt: dict) -> dict:
    task = attempt["task"]
    database = task["metadata"]["database"]
    right = rows(database, task["answer"])
    if right is None:
        sys.exit(f"task {task['id']}: its answer can't be run on {database}")
    given = verdicts(attempt.get("calls", []))
    correct = [(rows(database, query) == right) == yes for query, yes in given]
    return {
        "reward": float(rows(database, attempt["result"]) == right),
        "rewards": {"verdict": sum(correct) / len(correct) if correct else 0.0},
    }


if __name__ == "__main__":
    print(json.dumps(grade(json.load(sys.stdin))))
