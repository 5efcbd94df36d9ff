"""Divides a data set in Spider's layout for a training: no two of train, gate and test share a database.

    split.py SPIDER DIRECTORY [GATE [TEST [VALIDATION]]]

SPIDER has train.json (or train_spider.json), dev.json and database/. dev.json becomes test.json, TEST questions of it (all by
default). The gate has GATE questions (160 by default) of a seventh of train's databases; train.json has the questions of the
others. With VALIDATION, so many of these questions are in validation.json and not in train.json. Which databases and questions is decided by digests of their text, so the same data always gives the same splits.
"""

import hashlib
import json
import sys
from pathlib import Path


def digest(text: str) -> str:
    return hashlib.sha256(text.encode()).hexdigest()


def read(folder: Path, *names: str) -> list[dict]:
    for name in names:
        if (folder / name).is_file():
            rows = json.loads((folder / name).read_text(encoding="utf-8-sig"))
            if not isinstance(rows, list) or not all(isinstance(row, dict) and {"db_id", "question", "query"} <= row.keys() for row in rows):
                sys.exit(f"split.py: {folder / name} is not in Spider's layout: want a JSON array of objects with db_id, question and query")
            return rows
    sys.exit(f"split.py: {folder} has no {' or '.join(names)}: give a data set in Spider's layout, or leave DATA out to make one")


def chosen(rows: list[dict], count: int) -> list[dict]:
    """As many of the rows, drawn by the digests of their questions, in the order of the file."""
    drawn = sorted(range(len(rows)), key=lambda i: digest(f"{rows[i]['db_id']}\n{rows[i]['question']}\n{i}"))[:count]
    return [rows[i] for i in sorted(drawn)]


def main(source: Path, folder: Path, gate: int, test: int, validation: int) -> None:
    train, dev = read(source, "train.json", "train_spider.json"), read(source, "dev.json")
    databases = source / "database"
    if not databases.is_dir():
        sys.exit(f"split.py: {source} has no folder database, in which each db_id has NAME/NAME.sqlite")
    names = sorted({row["db_id"] for row in train}, key=digest)
    if len(names) < 2:
        sys.exit(f"split.py: {source} asks about {len(names)} database: the gate needs databases that train does not have")
    held = set(names[: max(1, len(names) // 7)])
    splits = {
        "train": [row for row in train if row["db_id"] not in held],
        "gate": chosen([row for row in train if row["db_id"] in held], gate),
        "test": chosen(dev, test or len(dev)),
    }
    if validation:
        splits["validation"] = chosen(splits["train"], validation)
        splits["train"] = [row for row in splits["train"] if row not in splits["validation"]]
    folder.mkdir(parents=True, exist_ok=True)
    link = folder / "database"
    if not link.exists():
        link.symlink_to(databases.resolve())
    for name, rows in splits.items():
        (folder / f"{name}.json").write_text(json.dumps(rows, indent=1, ensure_ascii=False) + "\n", encoding="utf-8")
        print(f"{name}: {len(rows)} questions about {len({row['db_id'] for row in rows})} databases")


if __name__ == "__main__":
    numbers = [int(word) for word in sys.argv[3:]]
    main(Path(sys.argv[1]), Path(sys.argv[2]), *(numbers + [160, 0, 0][len(numbers) :]))
