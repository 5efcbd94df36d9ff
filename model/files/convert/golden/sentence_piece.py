"""Trains a small vocabulary with SentencePiece, as Llama 2 and Mistral have them, and
writes it into a GGUF file with the weights of a small model:
../testdata/sentencepiece.gguf.gz. What SentencePiece makes of strings is written to
../testdata/sentencepiece-golden.json.gz, a list of [text, tokens]."""

import gzip
import io
import json
import pathlib
import random
import sys
import tempfile

import gguf
import numpy as np
import sentencepiece

HERE = pathlib.Path(__file__).parent
OUT = HERE.parent / "testdata"
sys.path.insert(0, str(HERE.parent.parent / "tokenizer" / "golden"))
from hard import WORDS, more, strings  # noqa: E402

HIDDEN, FEED, HEADS, ROWS = 16, 32, 2, 1536


def corpus():
    r = random.Random(1)
    for _ in range(2000):
        yield " ".join(r.choice(WORDS) for _ in range(12)) + r.choice([".", "!", ",  ", "'s 12345"])
    for _ in range(200):
        yield "def f(x):    return x + %d" % r.randrange(100)
    for text in strings(2000):
        yield from text.replace("\0", " ").splitlines()


def train():
    model = io.BytesIO()
    sentencepiece.SentencePieceTrainer.train(
        sentence_iterator=corpus(),
        model_writer=model,
        model_type="bpe",
        vocab_size=1500,
        byte_fallback=True,
        split_digits=True,
        normalization_rule_name="identity",
        remove_extra_whitespaces=False,
        allow_whitespace_only_pieces=True,
        character_coverage=0.98,
        user_defined_symbols=["<tool>"],
        num_threads=1,
        minloglevel=2,
    )
    return sentencepiece.SentencePieceProcessor(model_proto=model.getvalue())


def kind(words, i):
    for is_kind, value in [
        (words.IsUnknown, gguf.TokenType.UNKNOWN),
        (words.IsControl, gguf.TokenType.CONTROL),
        (words.IsByte, gguf.TokenType.BYTE),
    ]:
        if is_kind(i):
            return value
    return gguf.TokenType.USER_DEFINED if words.IdToPiece(i) == "<tool>" else gguf.TokenType.NORMAL


def write(path, words):
    out = gguf.GGUFWriter(path, "llama")
    out.add_context_length(128)
    out.add_embedding_length(HIDDEN)
    out.add_block_count(1)
    out.add_feed_forward_length(FEED)
    out.add_head_count(HEADS)
    out.add_layer_norm_rms_eps(1e-5)
    known = range(words.GetPieceSize())
    unused = range(words.GetPieceSize(), ROWS)
    out.add_tokenizer_model("llama")
    out.add_tokenizer_pre("default")
    out.add_token_list([words.IdToPiece(i) for i in known] + [f"[PAD{i}]" for i in unused])
    out.add_token_scores([words.GetScore(i) for i in known] + [-1000.0 for _ in unused])
    out.add_token_types([kind(words, i) for i in known] + [gguf.TokenType.UNUSED for _ in unused])
    out.add_bos_token_id(words.bos_id())
    out.add_eos_token_id(words.eos_id())
    out.add_unk_token_id(words.unk_id())
    rng = np.random.default_rng(1)
    tensors = {"token_embd": (ROWS, HIDDEN), "output_norm": (HIDDEN,), "blk.0.attn_norm": (HIDDEN,), "blk.0.ffn_norm": (HIDDEN,)}
    tensors |= {f"blk.0.attn_{part}": (HIDDEN, HIDDEN) for part in ("q", "k", "v", "output")}
    tensors |= {"blk.0.ffn_gate": (FEED, HIDDEN), "blk.0.ffn_up": (FEED, HIDDEN), "blk.0.ffn_down": (HIDDEN, FEED)}
    for name, shape in tensors.items():
        numbers = rng.standard_normal(shape, dtype=np.float32)
        out.add_tensor(f"{name}.weight", numbers if len(shape) == 1 else numbers.astype(np.float16))
    out.write_header_to_file()
    out.write_kv_data_to_file()
    out.write_tensors_to_file()
    out.close()


def pack(name, content):
    (OUT / name).write_bytes(gzip.compress(content, mtime=0))


def main():
    words = train()
    with tempfile.TemporaryDirectory() as folder:
        path = pathlib.Path(folder) / "model.gguf"
        write(path, words)
        pack("sentencepiece.gguf.gz", path.read_bytes())
    # Python's binding reads a NUL as the end.
    texts = [t for t in more(1500) if "\0" not in t]
    pairs = [[t, words.EncodeAsIds(t)] for t in texts]
    pack("sentencepiece-golden.json.gz", json.dumps(pairs, ensure_ascii=False, separators=(",", ":")).encode())
    print(len(pairs), "texts;", words.GetPieceSize(), "tokens")


if __name__ == "__main__":
    main()
