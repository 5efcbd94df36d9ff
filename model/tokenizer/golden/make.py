"""Trains small tokenizers with the settings of published ones and writes what they
make of hard strings: ../testdata/NAME.json and ../testdata/NAME-golden.json.gz.

    pip install -r requirements.txt && python make.py

With the path of a directory it writes instead NAME-golden.json.gz for each
NAME/tokenizer.json in it, which TestPublishedTokenizers reads.
"""

import gzip
import json
import pathlib
import random
import sys

from hard import POOLS, WORDS, strings
from tokenizers import AddedToken, Regex, Tokenizer, decoders, models, normalizers, pre_tokenizers, trainers

QWEN = (
    r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+"
)
LLAMA3 = QWEN.replace(r"|\p{N}|", r"|\p{N}{1,3}|")
O200K = (
    r"[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]*[\p{Ll}\p{Lm}\p{Lo}\p{M}]+(?i:'s|'t|'re|'ve|'m|'ll|'d)?"
    r"|[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]+[\p{Ll}\p{Lm}\p{Lo}\p{M}]*(?i:'s|'t|'re|'ve|'m|'ll|'d)?"
    r"|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n/]*|\s*[\r\n]+|\s+(?!\S)|\s+"
)


def corpus():
    r = random.Random(1)
    for _ in range(3000):
        yield " ".join(r.choice(WORDS) for _ in range(12)) + r.choice([".\n", "!\n\n", ",  ", "'s 12345\t"])
    for _ in range(400):
        yield json.dumps({"name": r.choice(WORDS), "arguments": {r.choice(WORDS): r.randrange(10000)}})
        yield "".join(r.choice(r.choice(POOLS)) for _ in range(20))
        yield "def f(x):\n    return x + %d\n" % r.randrange(100)


def split(pattern, behavior="isolated", invert=False):
    return pre_tokenizers.Sequence(
        [
            pre_tokenizers.Split(Regex(pattern), behavior, invert),
            pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False),
        ]
    )


def special(*texts):
    return [AddedToken(t, special=True, normalized=False) for t in texts]


def plain(*texts):
    return [AddedToken(t, special=False, normalized=False) for t in texts]


KINDS = {
    "qwen": dict(
        normalizer=normalizers.NFC(),
        cut=split(QWEN),
        added=special("<|endoftext|>", "<|im_start|>", "<|im_end|>")
        + plain("<tool_call>", "</tool_call>", "<think>", "</think>"),
    ),
    "llama3": dict(
        cut=split(LLAMA3),
        whole=True,
        added=special(
            "<|begin_of_text|>", "<|end_of_text|>", "<|start_header_id|>", "<|end_header_id|>", "<|eom_id|>", "<|eot_id|>", "<|python_tag|>"
        ),
    ),
    "o200k": dict(cut=split(O200K, "removed", True), added=special("<|endoftext|>")),
    # Every flag that an added token can have, and merges in the old spelling.
    "gpt2": dict(
        normalizer=normalizers.Sequence([normalizers.NFC()]),
        cut=pre_tokenizers.ByteLevel(add_prefix_space=True),
        old=True,
        added=special("<|endoftext|>")
        + [
            AddedToken("<mask>", lstrip=True, special=True, normalized=True),
            AddedToken("<sep>", rstrip=True, special=True, normalized=False),
            AddedToken("<pad>", lstrip=True, rstrip=True, special=False, normalized=False),
            AddedToken("<one>", single_word=True, special=False, normalized=True),
            AddedToken("<n\u0331>", special=False, normalized=True),
        ],
    ),
    "digits": dict(
        cut=pre_tokenizers.Sequence([pre_tokenizers.Digits(individual_digits=True), pre_tokenizers.ByteLevel(add_prefix_space=False)]),
        added=special("<|endoftext|>", "<|im_start|>", "<|im_end|>"),
    ),
}


def train(kind):
    t = Tokenizer(models.BPE(ignore_merges=kind.get("whole", False)))
    t.pre_tokenizer, t.decoder = kind["cut"], decoders.ByteLevel()
    if "normalizer" in kind:
        t.normalizer = kind["normalizer"]
    alphabet = pre_tokenizers.ByteLevel.alphabet()
    t.train_from_iterator(corpus(), trainers.BpeTrainer(vocab_size=700, initial_alphabet=alphabet, show_progress=False))
    t.add_tokens(kind["added"])
    t.add_special_tokens([a for a in kind["added"] if a.special])
    text = json.loads(t.to_str())
    if kind.get("old"):
        text["model"]["merges"] = [" ".join(m) for m in text["model"]["merges"]]
    if kind.get("whole"):  # a token that no merge makes
        text["model"]["merges"] = [m for m in text["model"]["merges"] if m != ["Ġthe", "n"] and m != ["f", "ox"]]
    return json.dumps(text, ensure_ascii=False, separators=(",", ":")) + "\n"


def golden(text, n):
    t = Tokenizer.from_str(text)
    cases = []
    for s in strings(n):
        t.encode_special_tokens = False
        case = {"text": s, "ids": t.encode(s, add_special_tokens=False).ids}
        t.encode_special_tokens = True
        plain = t.encode(s, add_special_tokens=False).ids
        if plain != case["ids"]:
            case["plain"] = plain
        decoded = t.decode(plain, skip_special_tokens=True)
        if decoded != s:
            case["decoded"] = decoded
        cases.append(case)
    return json.dumps(cases, ensure_ascii=False, separators=(",", ":"))


def write(path, text):
    path.write_bytes(gzip.compress(text.encode(), 9, mtime=0))


def main():
    if len(sys.argv) > 1:
        for path in sorted(pathlib.Path(sys.argv[1]).glob("*/tokenizer.json")):
            write(path.parent / "golden.json.gz", golden(path.read_text(), 5000))
        return
    testdata = pathlib.Path(__file__).parent.parent / "testdata"
    for name, kind in KINDS.items():
        text = train(kind)
        (testdata / f"{name}.json").write_text(text)
        write(testdata / f"{name}-golden.json.gz", golden(text, 2000))


main()
