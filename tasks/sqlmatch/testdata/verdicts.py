"""Writes what the official evaluations of Spider and BIRD say of pairs of queries.

The verdicts are those of eval_exec_match in a checkout of
https://github.com/taoyds/test-suite-sql-eval (pip install sqlparse tqdm) or, with --bird,
those of execute_model in the folder evaluation of a checkout of
https://github.com/bird-bench/mini_dev (pip install func_timeout psycopg2-binary pymysql).
Pairs are each gold query with itself and gold queries with mutations of them.

    python verdicts.py CHECKOUT school.sql > school.jsonl
    python verdicts.py --bird CHECKOUT/evaluation school.sql > school_bird.jsonl
    python verdicts.py CHECKOUT DIR/train.json DIR/dev.json > verdicts.jsonl
    FULGURITE_TEST_SQL_VERDICTS=verdicts.jsonl go test ./tasks/sqlmatch
"""

import collections
import json
import os
import pathlib
import random
import re
import sqlite3
import sys
import tempfile

MUTATIONS = 1000
SCHOOL = [
    "SELECT name, age FROM pupil",
    "SELECT DISTINCT subject FROM teacher",
    "SELECT count(DISTINCT name) FROM pupil",
    "SELECT name FROM pupil ORDER BY age DESC, id",
    "SELECT teacher.name, count(*) FROM pupil JOIN teacher ON teacher_id = teacher.id GROUP BY teacher.id",
    "SELECT name FROM teacher WHERE salary > 3000 AND subject = 'math'",
    "SELECT avg(age), max(grade) FROM pupil WHERE teacher_id = 1",
    "SELECT hired FROM teacher WHERE id < 4",
    "SELECT phone FROM pupil WHERE age != 9",
    "SELECT floor FROM empty_room",
    "SELECT * FROM pupil",
    "SELECT name FROM pupil WHERE age >= 10 LIMIT 2",
    "SELECT sum(grade) FROM pupil",
    "SELECT name FROM pupil WHERE teacher_id IN (SELECT id FROM teacher WHERE subject LIKE 'm%')",
]
SCHOOL_QUERIES = [
    ("SELECT name, age FROM pupil", "SELECT age, name FROM pupil ORDER BY name"),
    ("SELECT name, age FROM pupil", "SELECT name, age * 1.0 FROM pupil"),
    ("SELECT name, age FROM pupil", "SELECT name, age || '' FROM pupil"),
    ("SELECT name FROM pupil ORDER BY age", "SELECT name FROM pupil ORDER BY age DESC"),
    ("SELECT id, teacher_id FROM pupil", "SELECT teacher_id, id FROM pupil"),
    ("SELECT floor FROM empty_room", "SELECT id, name FROM pupil WHERE 0"),
    ("SELECT floor FROM empty_room", "SELECT NULL"),
    ("SELECT hired FROM teacher", "SELECT date(hired) FROM teacher"),
    ("SELECT phone FROM pupil WHERE id = 1", "SELECT phone + 1 FROM pupil WHERE id = 1"),
    ("SELECT phone FROM pupil WHERE id = 1", "SELECT phone FROM pupil WHERE id = 6"),
    ("SELECT count(*) FROM pupil WHERE age > 9", "SELECT count(*) FROM pupil WHERE age > = 10"),
    ("SELECT 2020 - age FROM pupil", "SELECT YEAR(CURDATE()) - age FROM pupil"),
    ("SELECT count(*) FROM pupil", "SELECT count(*) FROM pupils"),
    ("SELECT count(*) FROM pupil", "SELECT count(*) FROM pupil;"),
    ("SELECT count(*) FROM pupil", "SELECT 6.0"),
    ("SELECT count(*) FROM pupil", "SELECT '6'"),
    ("SELECT 'distinct' FROM pupil", "SELECT DISTINCT 'distinct' FROM pupil"),
    ("SELECT 'distinct' FROM pupil", "SELECT '' FROM pupil"),
    ("SELECT x'61' FROM pupil", "SELECT 'a' FROM pupil"),
    ("SELECT id, id, age, age FROM pupil", "SELECT age, id, age, id FROM pupil"),
    ("SELECT id, id, age, age FROM pupil", "SELECT age, id, id, id FROM pupil"),
]
BIRD_QUERIES = [
    ("SELECT count(DISTINCT name) FROM pupil", "SELECT count(name) FROM pupil"),
    ("SELECT count(name) FROM pupil", "SELECT count(DISTINCT name) FROM pupil"),
    ("SELECT DISTINCT name FROM pupil", "SELECT name FROM pupil GROUP BY name"),
    ("SELECT DISTINCT name FROM pupil", "SELECT name FROM pupil"),
    ("SELECT name FROM pupil", "SELECT DISTINCT name FROM pupil ORDER BY name DESC"),
    ("SELECT sum(DISTINCT age) FROM pupil", "SELECT sum(age) FROM pupil"),
    ("SELECT name FROM pupil ORDER BY age DESC", "SELECT name FROM pupil ORDER BY age"),
    ("SELECT name FROM (SELECT name FROM pupil ORDER BY age LIMIT 3)", "SELECT name FROM pupil ORDER BY age LIMIT 3"),
    ("SELECT name FROM (SELECT name FROM pupil ORDER BY age LIMIT 3)", "SELECT name FROM pupil ORDER BY age DESC LIMIT 3"),
    ("SELECT name FROM pupil WHERE age = (SELECT age FROM pupil ORDER BY age DESC LIMIT 1)", "SELECT name FROM pupil WHERE age = (SELECT max(age) FROM pupil)"),
    ("SELECT id, age FROM pupil", "SELECT age, id FROM pupil"),
    ("SELECT id FROM pupil", "SELECT id, id FROM pupil"),
    ("SELECT id, name FROM pupil WHERE 0", "SELECT id FROM pupil WHERE 0"),
    ("SELECT age FROM pupil", "SELECT age * 1.0 FROM pupil"),
    ("SELECT age FROM pupil", "SELECT age FROM pupil UNION ALL SELECT age FROM pupil"),
    ("SELECT age FROM pupil", "SELECT age FROM pupil UNION SELECT 1000"),
    ("SELECT age FROM pupil", "SELECT a.age FROM pupil a, pupil b, pupil c"),
    ("SELECT name FROM pupil WHERE teacher_id IS NOT DISTINCT FROM NULL", "SELECT name FROM pupil WHERE teacher_id IS NULL"),
    ("SELECT name FROM pupil WHERE teacher_id IS DISTINCT FROM 1", "SELECT name FROM pupil WHERE teacher_id IS NOT 1"),
    ("SELECT name FROM pupil WHERE teacher_id IS DISTINCT FROM 1", "SELECT name FROM pupil WHERE teacher_id <> 1"),
    ("SELECT count(*) FROM pupil WHERE age > 9", "SELECT count(*) FROM pupil WHERE age > = 10"),
    ("SELECT 2020 - age FROM pupil", "SELECT YEAR(CURDATE()) - age FROM pupil"),
    ("SELECT grade FROM pupil", "SELECT grade FROM pupil WHERE grade IS NOT NULL"),
    ("SELECT x'61'", "SELECT 'a'"),
    ("SELECT 9007199254740993", "SELECT 9007199254740992.0"),
]


def mutate(query, others, rng):
    """mutate changes a query in one way, which may leave its result as it is."""
    def replace(pattern, new):
        found = list(re.finditer(pattern, query, re.I))
        if not found:
            return query
        one = rng.choice(found)
        return query[: one.start()] + new(one) + query[one.end():]

    def columns(one):
        parts = one.group(2).split(",")
        rng.shuffle(parts)
        return one.group(1) + ", ".join(p.strip() for p in parts) + one.group(3)

    ways = [
        lambda: replace(r"\b\d+\b", lambda one: str(int(one.group()) + rng.choice([-1, 1, 10]))),
        lambda: replace(r"'[^']*'", lambda one: rng.choice(["''", "'x'", one.group().upper(), one.group().lower()])),
        lambda: replace(r"<=|>=|!=|<|>|=", lambda one: rng.choice(["<", ">", "=", "!=", ">=", "<=", "> =", "< ="])),
        lambda: replace(r"\b(count|sum|avg|min|max)\b(?=\s*\()", lambda one: rng.choice(["count", "sum", "avg", "min", "max"])),
        lambda: replace(r"\bdesc\b", lambda one: "ASC"),
        lambda: replace(r"\basc\b", lambda one: "DESC"),
        lambda: replace(r"\bdistinct\b", lambda one: ""),
        lambda: replace(r"\bselect\b", lambda one: "SELECT DISTINCT"),
        lambda: replace(r"\band\b", lambda one: "OR"),
        lambda: replace(r"\bor\b", lambda one: "AND"),
        lambda: replace(r"\border\s+by\b.*$", lambda one: ""),
        lambda: replace(r"\bwhere\b.*?(?=\bgroup\b|\border\b|\blimit\b|\)|$)", lambda one: ""),
        lambda: replace(r"\bgroup\s+by\b.*?(?=\bhaving\b|\border\b|\blimit\b|\)|$)", lambda one: ""),
        lambda: replace(r"\bjoin\b", lambda one: "LEFT JOIN"),
        lambda: replace(r"\bunion\b|\bintersect\b|\bexcept\b", lambda one: rng.choice(["UNION", "UNION ALL", "INTERSECT", "EXCEPT"])),
        lambda: replace(r"^(\s*select\s+)([^()]*?)(\s+from\b)", columns),
        lambda: query + " ORDER BY 1",
        lambda: query + rng.choice([" LIMIT 1", " LIMIT 100000"]),
        lambda: replace(r"\bfrom\b", lambda one: rng.choice([", 1 FROM", "* 1.0 FROM", "|| '' FROM", "FORM"])),
        lambda: rng.choice(others),
    ]
    return rng.choice(ways)()


def pairs(golds, mutations):
    """pairs are (database, gold, query)."""
    rng = random.Random(1)
    by_database = collections.defaultdict(list)
    for database, gold in golds:
        by_database[database].append(gold)
        yield database, gold, gold
    made = 0
    while made < mutations:
        database, gold = rng.choice(golds)
        query = gold
        for _ in range(rng.choice([1, 1, 2])):
            query = mutate(query, by_database[database], rng)
        if query != gold:
            made += 1
            yield database, gold, query


def main():
    bird = sys.argv[1] == "--bird"
    checkout, *sources = sys.argv[1 + bird:]
    sys.path.insert(0, checkout)
    if bird:
        from evaluation_ex import execute_model

        def verdict(database, query, gold):
            return execute_model(query, gold, database, 0, 30, "SQLite")["res"]
    else:
        from exec_eval import eval_exec_match

        def verdict(database, query, gold):
            return eval_exec_match(database, query, gold, False, False, False)

    golds, fixed = [], []
    for source in map(pathlib.Path, sources):
        if source.suffix == ".sql":
            path = os.path.join(tempfile.mkdtemp(), "school.sqlite")
            with sqlite3.connect(path) as connection:
                connection.executescript(source.read_text())
            golds += [(path, gold) for gold in SCHOOL]
            fixed += [(path, *pair) for pair in SCHOOL_QUERIES + (BIRD_QUERIES if bird else [])]
            continue
        for row in json.loads(source.read_text()):
            name = row["db_id"]
            golds.append((str(source.parent.absolute() / "database" / name / f"{name}.sqlite"), row["query"]))
    for database, gold, query in [*fixed, *pairs(golds, 300 if fixed else MUTATIONS)]:
        right = verdict(database, query, gold)
        place = "" if database.endswith("/school.sqlite") else database
        metric = {"metric": "bird"} if bird else {}
        print(json.dumps({"database": place, **metric, "gold": gold, "query": query, "right": bool(right)}))


main()
