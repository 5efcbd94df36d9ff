"""Prints for each NAME/tokenizer.json of a folder the megabytes a second that the
reference and ours encode on one thread, the best of three rounds in turns:
python compare.py PROGRAM FOLDER FILE..."""

import pathlib
import subprocess
import sys
import time

from tokenizers import Tokenizer

ROUNDS, SECONDS = 3, 1.5

program, folder, *files = sys.argv[1:]
texts = [pathlib.Path(f).read_text() for f in files]
size = sum(len(t.encode()) for t in texts)
print(f"{len(files)} files, {size / 1e6:.1f} MB")
print(f"{'vocabulary':20}{'tokens':>10}{'reference':>11}{'ours':>8}{'ratio':>7}")


def reference(t):
    tokens, done, began = 0, 0, time.perf_counter()
    while time.perf_counter() - began < SECONDS:
        # The fastest way it has: no offsets into the text.
        tokens = sum(len(e) for e in t.encode_batch_fast(texts, add_special_tokens=False))
        done += size
    return done / 1e6 / (time.perf_counter() - began), tokens


for path in sorted(pathlib.Path(folder).glob("*/tokenizer.json")):
    t = Tokenizer.from_file(str(path))
    t.encode_special_tokens = True
    theirs = ours = 0
    for _ in range(ROUNDS):
        speed, count = reference(t)
        theirs = max(theirs, speed)
        out = subprocess.run([program, "-tokenizer", path, "-seconds", str(SECONDS), *files], check=True, capture_output=True, text=True)
        speed, tokens = out.stdout.split()
        ours = max(ours, float(speed))
        if int(tokens) != count:
            sys.exit(f"{path.parent.name}: {tokens} tokens, the reference has {count}")
    print(f"{path.parent.name:20}{count:10}{theirs:11.2f}{ours:8.2f}{ours / theirs:7.2f}", flush=True)
