"""Makes a small part of a real data set for a learning curve: splits, demonstrations and a spec.

    prepare.py FAMILY SOURCE FOLDER SEED

FAMILY is sql (SOURCE is a folder in Spider's layout), questions (in MuSiQue's: train.jsonl, dev.jsonl) or math (in GSM8K's:
train.jsonl, test.jsonl). Nothing is downloaded. Tasks are chosen by SEED among those that are short enough for a model of 135 million
parameters on a processor; the test split is of the data set's own dev or test file. Demonstrations are gold answers of training
tasks that are not trained on by rewards, in SQL of databases of their own.
"""

import json
import random
import re
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
TRAIN, TEST, DEMONSTRATIONS = 48, 40, 160  # tasks, tasks, dialogs


def lines(path: Path) -> list[dict]:
    text = path.read_text()
    return json.loads(text) if text.lstrip().startswith("[") else [json.loads(line) for line in text.splitlines() if line.strip()]


def write(path: Path, rows: list[dict]) -> None:
    if not rows:
        sys.exit(f"{path.name}: nothing in the data set fits")
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))


def sql(source: Path, r: random.Random) -> tuple[list, list, list]:
    sys.path.insert(0, str(ROOT / "examples" / "sql"))
    import prompts

    schemas: dict[str, str] = {}

    def fitting(name: str) -> list[dict]:
        rows = []
        for number, row in enumerate(lines(source / name)):
            path = str((source / "database" / row["db_id"] / f"{row['db_id']}.sqlite").resolve())
            if path not in schemas:
                schemas[path] = prompts.schema(path)
            if len(schemas[path]) <= 500 and len(row["query"]) <= 80:
                metadata = {"db_id": row["db_id"], "database": path}
                rows.append({"id": f"{name}-{number}", "input": row["question"], "answer": row["query"], "metadata": metadata})
        r.shuffle(rows)
        return rows

    train = fitting("train.json")
    databases = sorted({row["metadata"]["db_id"] for row in train})
    shown = set(r.sample(databases, len(databases) // 2))
    demonstrated = [row for row in train if row["metadata"]["db_id"] in shown]
    dialogs = []
    for row in demonstrated[: DEMONSTRATIONS // 2]:
        path, question, gold = row["metadata"]["database"], row["input"], " ".join(row["answer"].split())
        schema, result = schemas[path], prompts.run(path, gold)
        wrong = " ".join(r.choice(demonstrated)["answer"].split())
        dialogs.append((prompts.written(schema, question), gold))
        dialogs.append(r.choice([
            (prompts.checked(question, gold, result), "yes"),
            (prompts.checked(question, wrong, prompts.run(path, wrong)), "yes" if wrong == gold else "no"),
            (prompts.rewritten(schema, question, wrong, prompts.run(path, wrong)), gold),
        ]))
    shots = [{"messages": [{"role": role, "content": text} for role, text in [*messages, ("assistant", reply)]]} for messages, reply in dialogs]
    return [row for row in train if row["metadata"]["db_id"] not in shown], fitting("dev.json"), shots


def questions(source: Path, r: random.Random) -> tuple[list, list, list]:
    sys.path.insert(0, str(ROOT / "examples" / "questions"))
    import data

    def hops(row: dict) -> set:
        return {part["id"] for part in row["question_decomposition"]}

    def task(row: dict) -> dict:
        return {"id": row["id"], "input": row["question"], "answer": [row["answer"], *row.get("answer_aliases", [])]}

    test = [row for row in lines(source / "dev.jsonl") if len(row["question_decomposition"]) == 2]
    r.shuffle(test)
    test = test[:TEST]
    known = {hop for row in test for hop in hops(row)} # what the test asks is not shown and not trained
    train = [row for row in lines(source / "train.jsonl") if len(row["question_decomposition"]) == 2 and not hops(row) & known]
    r.shuffle(train)
    half = len(train) // 2
    shots = []
    for row in train[:half]:
        messages = [{"role": "system", "content": "Search, then answer in few words."}, {"role": "user", "content": row["question"]}]
        answers: list[str] = []
        for number, part in enumerate(row["question_decomposition"], 1):
            query = re.sub(r"#(\d)", lambda one: answers[int(one.group(1)) - 1], part["question"]).replace(">>", " ")
            paragraph = row["paragraphs"][part["paragraph_support_idx"]]
            answers.append(part["answer"])
            messages += [data.call(number, " ".join(query.split())), {"role": "tool", "tool_call_id": f"call_{number}", "content": data.found(paragraph)}]
        messages.append({"role": "assistant", "content": row["answer"]})
        shots.append({"messages": messages, "tools": [data.TOOL]})
    return [task(row) for row in train[half:]], [task(row) for row in test], shots


def math(source: Path, r: random.Random) -> tuple[list, list, list]:
    sys.path.insert(0, str(ROOT / "examples" / "math"))
    import data

    def fitting(name: str) -> list[dict]:
        rows = []
        for number, row in enumerate(lines(source / name)):
            steps = re.findall(r"<<([-+*/().\d ]+)=([-\d.,]+)>>", row["answer"])
            answer = row["answer"].rsplit("####", 1)[1].strip().replace(",", "")
            if len(row["question"]) <= 220 and 1 <= len(steps) <= 3 and steps[-1][1].replace(",", "") == answer:
                rows.append({"id": f"{name}-{number}", "input": row["question"], "answer": answer, "steps": steps})
        r.shuffle(rows)
        return rows

    train = fitting("train.jsonl")
    shots = []
    for row in train[:DEMONSTRATIONS]:
        messages = [{"role": "system", "content": "Compute, then answer with the number alone."}, {"role": "user", "content": row["input"]}]
        for number, (expression, result) in enumerate(row["steps"], 1):
            function = {"name": "calculator", "arguments": json.dumps({"expression": expression})}
            messages += [
                {"role": "assistant", "content": None, "tool_calls": [{"id": f"call_{number}", "type": "function", "function": function}]},
                {"role": "tool", "tool_call_id": f"call_{number}", "content": result},
            ]
        messages.append({"role": "assistant", "content": row["answer"]})
        shots.append({"messages": messages, "tools": [data.TOOL]})
    plain = lambda rows: [{key: row[key] for key in ("id", "input", "answer")} for row in rows]
    return plain(train[DEMONSTRATIONS:]), plain(fitting("test.jsonl")), shots


def main(family: str, source: Path, folder: Path, seed: int) -> None:
    r = random.Random(seed)
    train, test, shots = {"sql": sql, "questions": questions, "math": math}[family](source, r)
    folder.mkdir(parents=True, exist_ok=True)
    r.shuffle(shots)
    write(folder / "train.jsonl", train[:TRAIN])
    write(folder / "test.jsonl", test[:TEST])
    write(folder / "demonstrations.jsonl", shots[:DEMONSTRATIONS])
    if family == "questions":
        rows = [row for name in ("train.jsonl", "dev.jsonl") for row in lines(source / name)]
        write(folder / "corpus.jsonl", [{"title": p["title"], "text": p["paragraph_text"]} for row in rows for p in row["paragraphs"]])


if __name__ == "__main__":
    if len(sys.argv) != 5 or sys.argv[1] not in ("sql", "questions", "math"):
        sys.exit(__doc__)
    main(sys.argv[1], Path(sys.argv[2]), Path(sys.argv[3]), int(sys.argv[4]))
