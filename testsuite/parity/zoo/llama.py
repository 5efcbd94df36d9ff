"""Compares GGUF files of the zoo with what llama.cpp finds in them.

    python llama.py FOLDER

Beside FOLDER/NAME/model.gguf is ours.json: `ids`, the tokens of each text with those around it, and `ends`, the tokens
at which an import of the file ends a reply. llama.cpp says at which it ends when it loads a model.
"""

import json
import os
import pathlib
import re
import subprocess
import sys
import unicodedata
import urllib.request

import xllamacpp


def ask(address, path, body):
    request = urllib.request.Request(address + path, json.dumps(body).encode(), {"Content-Type": "application/json"})
    with urllib.request.urlopen(request) as reply:
        return json.load(reply)


def one(path, texts):
    """Runs in a process of its own: it prints what llama.cpp makes of texts, and llama.cpp logs to standard error."""
    p = xllamacpp.CommonParams()
    p.model.path, p.n_ctx, p.n_gpu_layers, p.warmup, p.n_parallel, p.verbosity = path, 128, 0, False, 1, 5
    server = xllamacpp.Server(p)
    made = {}
    for text in texts:
        body = {"content": text, "add_special": True, "parse_special": True}
        made[text] = ask(server.listening_address, "/tokenize", body)["tokens"]
    print("TOKENS " + json.dumps(made), flush=True)
    os._exit(0)  # the server's threads sometimes keep a process from ending


def main():
    if sys.argv[1] == "--one":
        return one(sys.argv[2], json.loads(sys.argv[3]))
    wrong = 0
    files = sorted(pathlib.Path(sys.argv[1]).glob("*/model.gguf"))
    for path in files:
        ours = json.loads((path.parent / "ours.json").read_text())
        command = [sys.executable, __file__, "--one", str(path), json.dumps(list(ours["ids"]))]
        done = subprocess.run(command, capture_output=True, text=True, timeout=60)
        found = re.search("^TOKENS (.*)$", done.stdout, re.M)
        if not found:
            raise SystemExit(f"{path}: llama.cpp does not load it:\n{done.stderr[-2000:]}")
        tokens = json.loads(found[1])
        ends = sorted({int(n) for n in re.findall(r" - (\d+) \('", done.stderr + done.stdout)})
        for text, ids in ours["ids"].items():
            if unicodedata.normalize("NFC", text) != text:
                continue  # llama.cpp leaves out this step of Qwen's tokenizers
            if tokens[text] != ids:
                wrong += 1
                print(f"{path}: {text!r} is {tokens[text]} in llama.cpp, and {ids} here")
        if ends != ours["ends"]:
            wrong += 1
            print(f"{path}: llama.cpp ends replies at {ends}, an import at {ours['ends']}")
    if wrong or not files:
        raise SystemExit(f"{wrong} differences in {len(files)} files")
    print(f"llama.cpp finds the same tokens, and the same ends of replies, in {len(files)} files")


main()
