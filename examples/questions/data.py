"""Questions of two hops about invented people in MuSiQue's layout, the same for the same seed.

    data.py DIRECTORY [SEED]

train.jsonl, dev.jsonl and test.jsonl share no question, also no single one. Their paragraphs, together with those of corpus.jsonl,
are what a search finds. demonstrations.jsonl shows how the search is called and an answer given; half of the calls and
answers there are wrong, since which are right is to be learned from rewards. small.jsonl and small-demonstrations.jsonl have four of
the questions, and one search for each, for a model that can do no more.
"""

import json
import random
import sys
from pathlib import Path

FIRST = ["Ada", "Bruno", "Cleo", "Dario", "Edda", "Falk", "Greta", "Hugo", "Ilse", "Jarl", "Kaja", "Lino"]
LAST = ["Abel", "Borg", "Cato", "Dahl", "Ekman", "Frey", "Graf", "Holm"]
TOWNS = ["Aldmoor", "Brackford", "Calder", "Dunmere", "Elstow", "Farrow", "Gilden", "Hexley", "Inver", "Jarrow", "Kelby", "Lund"]
RIVERS = ["Arne", "Brill", "Cole", "Dove", "Esk", "Fleet", "Gade", "Hull"]
COUNTS = {"train": 24, "dev": 6, "test": 12}

TOOL = {
    "type": "function",
    "function": {
        "name": "search",
        "description": "Finds the paragraphs that fit a query best.",
        "parameters": {
            "type": "object",
            "properties": {
                "query": {"type": "string", "description": "words to look for"},
                "limit": {"type": "integer", "description": "how many paragraphs at most, 1 to 50; 5 if left out"},
            },
            "required": ["query"],
        },
    },
}


def row(split: str, number: int, person: str, town: str, river: str) -> dict:
    paragraphs = [
        {"idx": 0, "title": person, "paragraph_text": f"{person} was born in {town}.", "is_supporting": True},
        {"idx": 1, "title": town, "paragraph_text": f"{town} lies on the river {river}.", "is_supporting": True},
    ]
    hops = [
        {"id": f"{split}-{number}-1", "question": f"{person} >> place of birth", "answer": town, "paragraph_support_idx": 0},
        {"id": f"{split}-{number}-2", "question": "#1 >> river", "answer": river, "paragraph_support_idx": 1},
    ]
    return {
        "id": f"2hop__{split}_{number}",
        "paragraphs": paragraphs,
        "question": f"On which river lies the town where {person} was born?",
        "question_decomposition": hops,
        "answer": river,
        "answer_aliases": [f"the {river}", f"river {river}"],
        "answerable": True,
    }


def found(*paragraphs: dict) -> str:
    """What the search replies, but for the scores."""
    return json.dumps({"paragraphs": [{"score": 5.847364966896757, "text": p["paragraph_text"], "title": p["title"]} for p in paragraphs]}, separators=(",", ":"))


def call(number: int, query: str) -> dict:
    function = {"name": "search", "arguments": json.dumps({"query": query, "limit": 1}, separators=(",", ":"))}
    return {"role": "assistant", "content": None, "tool_calls": [{"id": f"call_{number}", "type": "function", "function": function}]}


def demonstration(r: random.Random, asked: dict, hops: int = 2) -> dict:
    """A search for the person, one for the town or again for the person, and an answer, the right one or any."""
    first, second = asked["paragraphs"]
    titles, rivers = [first["title"], second["title"]], [asked["answer"], r.choice(RIVERS)]
    messages = [
        {"role": "system", "content": "Search, then answer in few words."},
        {"role": "user", "content": asked["question"]},
        call(1, first["title"]),
        {"role": "tool", "tool_call_id": "call_1", "content": found(first)},
    ]
    if hops == 2:
        title = r.choice(titles)
        paragraph = found(first if title == first["title"] else second)
        messages += [call(2, title), {"role": "tool", "tool_call_id": "call_2", "content": paragraph}]
    messages.append({"role": "assistant", "content": r.choice(rivers)})
    return {"messages": messages, "tools": [TOOL]}


def main(folder: Path, seed: int) -> None:
    r = random.Random(seed)
    folder.mkdir(parents=True, exist_ok=True)
    people = [f"{first} {last}" for first in FIRST for last in LAST]
    r.shuffle(people)
    rivers = {town: r.choice(RIVERS) for town in TOWNS}
    splits = {}
    for name, count in COUNTS.items():
        rows = []
        for number in range(count):
            town = r.choice(TOWNS)
            rows.append(row(name, number, people.pop(), town, rivers[town]))
        splits[name] = rows
        (folder / f"{name}.jsonl").write_text("".join(json.dumps(line) + "\n" for line in rows))
    others = [(person, r.choice(TOWNS)) for person in people]
    corpus = [{"title": person, "text": f"{person} was born in {town}."} for person, town in others]
    (folder / "corpus.jsonl").write_text("".join(json.dumps(line) + "\n" for line in corpus))
    small = splits["train"][:4]
    (folder / "small.jsonl").write_text("".join(json.dumps(line) + "\n" for line in small))
    for name, rows, times, hops in ("", splits["train"], 10, 2), ("small-", small, 40, 1):
        shown = [demonstration(r, asked, hops) for _ in range(times) for asked in rows]
        r.shuffle(shown)
        (folder / f"{name}demonstrations.jsonl").write_text("".join(json.dumps(line) + "\n" for line in shown))


if __name__ == "__main__":
    main(Path(sys.argv[1]), int(sys.argv[2]) if len(sys.argv) > 2 else 1)
