"""Prints what the learning curves below a folder came to, a row for each family and seed and the mean over seeds."""

import contextlib
import json
import sqlite3
import statistics
import sys
from pathlib import Path


def read(path: Path) -> dict:
    try:
        return json.loads(path.read_text())
    except (OSError, ValueError):
        return {}


def shown(e: dict) -> str:
    if not e:
        return "–"
    text = f"{e['mean']:.3f} ± {e['std_error']:.3f}"
    if e.get("pass"):
        last = e["pass"]["by_k"][-1]
        text += f", pass@{last['k']} {last['pass_at_k']['mean']:.3f}"
    return text


def training(store: Path) -> str:
    """The mean reward of the first and of the last quarter of the steps."""
    if not store.exists():
        return "–"
    with contextlib.closing(sqlite3.connect(f"file:{store}?mode=ro", uri=True)) as db:
        rows = db.execute("SELECT metrics FROM steps WHERE run = 'curve' ORDER BY step").fetchall()
    rewards = [json.loads(metrics)["reward/mean"] for metrics, in rows]
    quarter = len(rewards) // 4
    if not quarter:
        return "–"
    return f"{statistics.mean(rewards[:quarter]):.3f} → {statistics.mean(rewards[-quarter:]):.3f}"


def main(folder: Path) -> None:
    means: dict[str, list[tuple[float, float, float]]] = {}
    print("| family | seed | as it is | after the warm start | after training by rewards | rewards of training, first to last quarter of the steps |\n| --- | --- | --- | --- | --- | --- |")
    for here in sorted(folder.glob("*-*")):
        family, _, seed = here.name.rpartition("-")
        base = read(here / "base.json")
        tests = sorted((e for e in read(here / "report.json").get("evaluations", []) if e["kind"] == "test"), key=lambda e: e["version"])
        before, after = (tests[0], tests[-1]) if len(tests) > 1 else ({}, {})
        print(f"| {family} | {seed} | {shown(base)} | {shown(before)} | {shown(after)} | {training(here / 'state' / 'fulgurite.db')} |")
        if base and before:
            means.setdefault(family, []).append((base["mean"], before["mean"], after["mean"]))
    for family, rows in means.items():
        if len(rows) > 1:
            cells = [f"{statistics.mean(column):.3f} ± {statistics.stdev(column) / len(rows) ** 0.5:.3f}" for column in zip(*rows)]
            print(f"| {family} | mean of {len(rows)} | {' | '.join(cells)} | |")


if __name__ == "__main__":
    main(Path(sys.argv[1]))
