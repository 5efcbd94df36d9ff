"""Writes what the reference makes of whole prompts: ../testdata/prompts.json. A prompt
gets the tokens of each kind of post-processor and has special tokens in its text.

    pip install -r requirements.txt && python prompts.py
"""

import json
import pathlib

from tokenizers import Tokenizer, processors

HERE = pathlib.Path(__file__).parent / "../testdata"


def kinds(tokens):
    (begin, b), (end, e) = tokens
    pair = [(begin, b), (end, e)]
    begins = processors.TemplateProcessing(single=f"{begin} $A", special_tokens=pair)
    level = processors.ByteLevel(trim_offsets=False)
    yield None
    yield level
    yield begins
    yield processors.TemplateProcessing(single=f"{begin} $A {end} {end}", special_tokens=pair)
    yield processors.Sequence([level, begins])
    yield processors.RobertaProcessing((end, e), (begin, b))
    yield processors.BertProcessing((end, e), (begin, b))


cases = []
for name in ["llama2", "llama3", "qwen"]:
    tokenizer = Tokenizer.from_file(str(HERE / f"{name}.json"))
    special = sorted((t.content, i) for i, t in tokenizer.get_added_tokens_decoder().items() if t.special)
    first, last = special[0], special[-1]
    texts = ["2+2=", " a", "", f"{last[0]}user\nhi{last[0]}\n", f"one{first[0]} two {last[0]}", f"{last[0]}<|fim|>"]
    for kind in kinds((first, last)):
        tokenizer = Tokenizer.from_file(str(HERE / f"{name}.json"))
        if kind is not None:
            tokenizer.post_processor = kind
        setting = json.loads(tokenizer.to_str())["post_processor"]
        for text in texts:
            cases.append({"tokenizer": name, "post_processor": setting, "text": text, "ids": tokenizer.encode(text).ids})
(HERE / "prompts.json").write_text("[\n" + ",\n".join(json.dumps(c, ensure_ascii=False) for c in cases) + "\n]\n")
