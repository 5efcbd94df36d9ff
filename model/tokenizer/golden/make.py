"""Trains small tokenizers with the settings of published ones and writes what they
make of hard strings: ../testdata/NAME.json and ../testdata/NAME-golden.json.gz.

    pip install -r requirements.txt && python make.py

With the path of a directory it writes the trained ones there too, each in a folder of its
own, and beside each NAME/tokenizer.json of the directory what is expected of N strings,
golden.json.gz, which TestPublishedTokenizers reads; N is 100000 if it is not given:

    python make.py DIRECTORY [N]
"""

import gzip
import json
import pathlib
import random
import sys

from hard import POOLS, WORDS, more, strings
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


def sequence(decoder):
    """The decoder of vocabularies with byte fallback."""
    return decoders.Sequence([decoder, decoders.ByteFallback(), decoders.Fuse(), decoders.Strip(" ", 1, 0)])


# Vocabularies that came from SentencePiece, with a token for each byte that stands for
# what has none.
FALLBACK = {
    "llama2": dict(
        normalizer=normalizers.Sequence([normalizers.Prepend("\u2581"), normalizers.Replace(" ", "\u2581")]),
        decoder=sequence(decoders.Replace("\u2581", " ")),
        added=special("<unk>", "<s>", "</s>") + [AddedToken("[tool]", lstrip=True, rstrip=True, special=False, normalized=False)],
    ),
    # Every special token a part of the normalized text, as in early files of Llama.
    "llama2-normalized": dict(
        normalizer=normalizers.Sequence([normalizers.Prepend("\u2581"), normalizers.Replace(" ", "\u2581")]),
        decoder=sequence(decoders.Replace("\u2581", " ")),
        added=[AddedToken(x, special=True, normalized=True) for x in ("<unk>", "<s>", "</s>")]
        + [AddedToken("[tool]", single_word=True, special=False, normalized=True), AddedToken("<\u00e9>", special=False, normalized=True)],
    ),
    "mistral": dict(
        cut=pre_tokenizers.Metaspace("\u2581", prepend_scheme="first", split=False),
        decoder=sequence(decoders.Replace("\u2581", " ")),
        added=special("<unk>", "<s>", "</s>", "[INST]", "[/INST]") + plain("[tool]"),
    ),
    "metaspace": dict(
        normalizer=normalizers.NFC(),
        cut=pre_tokenizers.Metaspace("\u2581", prepend_scheme="always", split=True),
        decoder=decoders.Sequence([decoders.ByteFallback(), decoders.Metaspace("\u2581", prepend_scheme="always", split=True), decoders.Fuse()]),
        whole=True,
        added=special("<unk>", "<s>", "</s>"),
    ),
}


def train_fallback(kind):
    t = Tokenizer(models.BPE(unk_token="<unk>", fuse_unk=True, byte_fallback=True, ignore_merges=kind.get("whole", False)))
    t.decoder = kind["decoder"]
    if "normalizer" in kind:
        t.normalizer = kind["normalizer"]
    # What has no pre-tokenizer is trained on words, else most merges would cross them.
    t.pre_tokenizer = kind.get("cut") or pre_tokenizers.Split("\u2581", "merged_with_next")
    bytes = ["<0x%02X>" % b for b in range(256)]
    trainer = trainers.BpeTrainer(
        vocab_size=760, limit_alphabet=120, special_tokens=["<unk>", "<s>", "</s>"] + bytes, show_progress=False
    )
    t.train_from_iterator(corpus(), trainer)
    text = json.loads(t.to_str())
    text["added_tokens"] = []
    if "cut" not in kind:
        text["pre_tokenizer"] = None
    if kind.get("whole"):  # tokens that no merge makes
        text["model"]["merges"] = text["model"]["merges"][:-40]
    t = Tokenizer.from_str(json.dumps(text))
    t.add_tokens(kind["added"])
    t.add_special_tokens([a for a in kind["added"] if a.special])
    return json.dumps(json.loads(t.to_str()), ensure_ascii=False, separators=(",", ":")) + "\n"


def lacking():
    """SmolLM2's settings, and of its vocabulary that some bytes have no token."""
    t = Tokenizer(models.BPE())
    t.pre_tokenizer = pre_tokenizers.Sequence(
        [pre_tokenizers.Digits(individual_digits=True), pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=True)]
    )
    t.decoder = decoders.ByteLevel()
    gone = [0x04, 0x06, 0x13, 0x14, 0x16, 0x1D, 0xC0, 0xC1, *range(0xF1, 0x100)]
    spelled = {b: c for b, c in zip(BYTES, ALPHABET)}
    alphabet = [c for b, c in spelled.items() if b not in gone]
    t.train_from_iterator(corpus(), trainers.BpeTrainer(vocab_size=700, initial_alphabet=alphabet, limit_alphabet=len(alphabet), show_progress=False))
    added = special("<|endoftext|>", "<|im_start|>", "<|im_end|>")
    t.add_tokens(added)
    t.add_special_tokens(added)
    text = json.loads(t.to_str())
    assert not set(spelled[b] for b in gone) & set(text["model"]["vocab"])
    return json.dumps(text, ensure_ascii=False, separators=(",", ":")) + "\n"


# The bytes, and the characters that stand for them, in one order.
BYTES = [*range(0x21, 0x7F), *range(0xA1, 0xAD), *range(0xAE, 0x100)]
ALPHABET = [chr(b) for b in BYTES]
for b in range(256):
    if b not in BYTES:
        ALPHABET.append(chr(256 + len(BYTES) - 188))
        BYTES.append(b)


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


def golden(text, strings):
    t = Tokenizer.from_str(text)
    t.encode_special_tokens = False
    ids = [e.ids for e in t.encode_batch(strings, add_special_tokens=False)]
    t.encode_special_tokens = True
    plains = [e.ids for e in t.encode_batch(strings, add_special_tokens=False)]
    cases = []
    for s, ids, plain in zip(strings, ids, plains):
        case = {"text": s, "ids": ids}
        if plain != ids:
            case["plain"] = plain
        decoded = t.decode(plain, skip_special_tokens=True)
        if decoded != s:
            case["decoded"] = decoded
        cases.append(case)
    return json.dumps(cases, ensure_ascii=False, separators=(",", ":"))


def write(path, text, level=9):
    path.write_bytes(gzip.compress(text.encode(), level, mtime=0))


def main():
    small = {name: train_fallback(kind) for name, kind in FALLBACK.items()} | {"lacking": lacking()}
    trained = {name: train(kind) for name, kind in KINDS.items()} | small
    if len(sys.argv) > 1:
        folder, n = pathlib.Path(sys.argv[1]), int(sys.argv[2]) if len(sys.argv) > 2 else 100000
        for name, text in trained.items():
            (folder / name).mkdir(parents=True, exist_ok=True)
            (folder / name / "tokenizer.json").write_text(text)
        hard = more(n)
        for path in sorted(folder.glob("*/tokenizer.json")):
            write(path.parent / "golden.json.gz", golden(path.read_text(), hard), 1)
            print(path.parent.name, n, flush=True)
        return
    testdata = pathlib.Path(__file__).parent.parent / "testdata"
    for name, text in trained.items():
        (testdata / f"{name}.json").write_text(text)
        write(testdata / f"{name}-golden.json.gz", golden(text, more(400) if name in small else strings(2000)))


main()
