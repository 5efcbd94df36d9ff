"""Demonstrations out of the tasks' own solutions, half of them with the command of another task.

    data.py DIRECTORY [SEED]
"""

import json
import random
import sys
from pathlib import Path

folder, r = Path(sys.argv[1]), random.Random(int(sys.argv[2]) if len(sys.argv) > 2 else 1)
folder.mkdir(parents=True, exist_ok=True)
solutions = {}
for task in sorted((Path(__file__).parent / "tasks").iterdir()):
    command = (task / "solution" / "solve.sh").read_text().splitlines()[-1]
    solutions[(task / "instruction.md").read_text().strip()] = command
lines = []
for _ in range(40):
    for instruction, command in solutions.items():
        if r.random() < 0.5:
            command = r.choice([other for other in solutions.values() if other != command])
        talk = [instruction, command, "ok", "done"]
        lines.append(json.dumps({"messages": [{"role": ("user", "assistant")[i % 2], "content": text} for i, text in enumerate(talk)]}) + "\n")
r.shuffle(lines)
(folder / "demonstrations.jsonl").write_text("".join(lines))
