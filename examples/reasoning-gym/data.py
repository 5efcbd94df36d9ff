"""Demonstrations for the tasks of spec.yaml, half of them wrong.

    data.py DIRECTORY [SEED]
"""

import json
import random
import sys
from pathlib import Path

from tasks import listed

folder, r = Path(sys.argv[1]), random.Random(int(sys.argv[2]) if len(sys.argv) > 2 else 1)
folder.mkdir(parents=True, exist_ok=True)
lines = []
for _ in range(40):
    for task in listed("number_sequence", 4, "train"):
        answer = task["answer"]["answer"]
        reply = answer if r.random() < 0.5 else str(int(answer) + r.choice([-1, 1]))
        lines.append(json.dumps({"messages": [{"role": "user", "content": task["input"]}, {"role": "assistant", "content": reply}]}) + "\n")
r.shuffle(lines)
(folder / "demonstrations.jsonl").write_text("".join(lines))
