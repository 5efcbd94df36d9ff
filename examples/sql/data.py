"""Questions about two small databases in Spider's layout, the same for the same seed.

    data.py DIRECTORY [SEED]

train.json, dev.json and test.json share no question, database/NAME/NAME.sqlite are what they ask about. demonstrations.jsonl
shows how each of the three agents answers; half of the queries and verdicts there are wrong, since which are right is
to be learned from rewards. small.json and small-demonstrations.jsonl have four of the questions, for a model that can do no more.
"""

import json
import random
import shutil
import sqlite3
import sys
from contextlib import closing
from pathlib import Path

import prompts

TABLES = {
    "library": (
        "books",
        ["title", "author", "year", "pages"],
        [
            ("Salt", "Ines Vold", 1988, 210), ("Tides", "Ines Vold", 1994, 340), ("The Lamp", "Omar Reyl", 2001, 128),
            ("North", "Omar Reyl", 2001, 505), ("Harbour", "Lia Cairn", 1979, 264), ("Clay", "Lia Cairn", 1988, 190),
            ("A Field", "Teo Brandt", 2011, 320), ("Winter Bees", "Teo Brandt", 1994, 288), ("Copper", "Mara Quist", 2011, 412),
        ],
    ),
    "garden": (
        "plants",
        ["name", "colour", "height", "year"],
        [
            ("Arwen", "red", 40, 1990), ("Bellis", "white", 15, 2003), ("Crocus", "blue", 12, 1990), ("Dahlia", "red", 110, 2014),
            ("Elder", "white", 300, 1985), ("Flax", "blue", 60, 2003), ("Geum", "yellow", 45, 2014), ("Hosta", "white", 70, 1999),
        ],
    ),
}

SMALL = [
    "How many books are there?", "What is the title of each of the books?",
    "How many plants are there?", "What is the name of each of the plants?",
]


def questions() -> list[tuple[str, str, str]]:
    """Database, question and query of all that can be asked."""
    asked = []
    for database, (table, columns, rows) in TABLES.items():
        names = columns[0]
        asked.append((database, f"How many {table} are there?", f"SELECT count(*) FROM {table}"))
        for column in columns:
            asked.append((database, f"What is the {column} of each of the {table}?", f"SELECT {column} FROM {table}"))
            asked.append((database, f"How many different values of {column} do the {table} have?", f"SELECT count(DISTINCT {column}) FROM {table}"))
        for position, column in enumerate(columns[1:], 1):
            for value in sorted({row[position] for row in rows}):
                written = f"'{value}'" if isinstance(value, str) else value
                asked.append((database, f"Which {table} have {column} {value}?", f"SELECT {names} FROM {table} WHERE {column} = {written}"))
                asked.append((database, f"How many {table} have {column} {value}?", f"SELECT count(*) FROM {table} WHERE {column} = {written}"))
        for column in columns[2:]:
            asked.append((database, f"Which of the {table} has the largest {column}?", f"SELECT {names} FROM {table} ORDER BY {column} DESC LIMIT 1"))
            asked.append((database, f"What is the mean {column} of the {table}?", f"SELECT avg({column}) FROM {table}"))
    return asked


def databases(folder: Path) -> dict[str, Path]:
    """Writes the databases and returns where they are."""
    paths = {}
    for name, (table, columns, rows) in TABLES.items():
        paths[name] = folder / "database" / name / f"{name}.sqlite"
        paths[name].parent.mkdir(parents=True)
        with closing(sqlite3.connect(paths[name])) as connection, connection:
            connection.execute(f"CREATE TABLE {table} ({', '.join(columns)})")
            connection.executemany(f"INSERT INTO {table} VALUES (?, ?, ?, ?)", rows)
    return paths


def dialog(messages: list[tuple[str, str]], reply: str) -> dict:
    return {"messages": [{"role": role, "content": text} for role, text in [*messages, ("assistant", reply)]]}


def demonstrations(r: random.Random, paths: dict[str, Path], asked: list[tuple[str, str, str]]) -> list[dict]:
    """A dialog of each agent about each question, the writer's and the rewriter's queries right or another question's."""
    shown = []
    for database, question, query in asked:
        path = str(paths[database])
        others = [other for name, _, other in asked if name == database and other != query]
        schema, first, second = prompts.schema(path), r.choice([query, r.choice(others)]), r.choice([query, r.choice(others)])
        result = prompts.run(path, first)
        shown.append(dialog(prompts.written(schema, question), first))
        shown.append(dialog(prompts.checked(question, first, result), r.choice(["yes", "no"])))
        shown.append(dialog(prompts.rewritten(schema, question, first, result), second))
    r.shuffle(shown)
    return shown


def main(folder: Path, seed: int) -> None:
    r = random.Random(seed)
    shutil.rmtree(folder, ignore_errors=True)
    paths = databases(folder)
    asked = questions()
    r.shuffle(asked)
    splits = {"test": asked[:12], "dev": asked[12:20], "train": asked[20:]}
    splits["small"] = [row for row in questions() if row[1] in SMALL]
    for name, rows in splits.items():
        text = json.dumps([{"db_id": database, "question": question, "query": query} for database, question, query in rows], indent=1)
        (folder / f"{name}.json").write_text(text + "\n")
    for name, times in {"": 4, "small-": 40}.items():
        lines = [json.dumps(line) + "\n" for _ in range(times) for line in demonstrations(r, paths, splits[name.removesuffix("-") or "train"])]
        (folder / f"{name}demonstrations.jsonl").write_text("".join(lines))


if __name__ == "__main__":
    main(Path(sys.argv[1]), int(sys.argv[2]) if len(sys.argv) > 2 else 1)
