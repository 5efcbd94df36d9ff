"""Writes the tokenizer.json of SmolLM2 from the GGUF file that holds its vocabulary:
python smollm2.py FILE.gguf tokenizer.json. The pre-tokenizer is the one that the file
names, "smollm": digits one by one, then GPT-2's pattern."""

import json
import sys

from gguf import GGUFReader

CONTROL = 3

fields = GGUFReader(sys.argv[1]).fields
if fields["tokenizer.ggml.pre"].contents() != "smollm":
    sys.exit("no vocabulary of SmolLM")
tokens = fields["tokenizer.ggml.tokens"].contents()
kinds = fields["tokenizer.ggml.token_type"].contents()
level = dict(type="ByteLevel", add_prefix_space=False, trim_offsets=True, use_regex=True)
added = [
    dict(id=i, content=token, single_word=False, lstrip=False, rstrip=False, normalized=False, special=True)
    for i, (token, kind) in enumerate(zip(tokens, kinds))
    if kind == CONTROL
]
model = dict(
    type="BPE", dropout=None, unk_token=None, continuing_subword_prefix=None, end_of_word_suffix=None, fuse_unk=False, byte_fallback=False,
    vocab={token: i for i, token in enumerate(tokens)}, merges=fields["tokenizer.ggml.merges"].contents(),
)
file = dict(
    version="1.0", truncation=None, padding=None, added_tokens=added, normalizer=None,
    pre_tokenizer=dict(type="Sequence", pretokenizers=[dict(type="Digits", individual_digits=True), level]), post_processor=None,
    decoder=level | dict(add_prefix_space=True), model=model,
)
with open(sys.argv[2], "w") as out:
    json.dump(file, out, ensure_ascii=False)
