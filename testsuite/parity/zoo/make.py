"""Makes a zoo of small models as people have them, and writes beside each what transformers makes of it.

    python make.py FOLDER [--all]

Each folder has a model's directory and reference.json with these fields:

    refused    the beginning of the error with which the model must be refused; the other fields are then absent
    ids        the tokens of each text, without tokens around it
    before     the tokens around a text
    after
    special    the special tokens
    logprobs   log p of each token of `row` but the first

Without --all it makes one member of each kind: the way in which tokens are added, the post-processor, and whether the
output layer is tied.
"""

import json
import logging
import pathlib
import sys

import torch
from safetensors.torch import load_file, save_file
from transformers import AutoModelForCausalLM, AutoTokenizer, LlamaConfig, LlamaForCausalLM

TOKENIZERS = pathlib.Path("model/tokenizer/testdata")
TEMPLATE = (
    "{% for m in messages %}{{ '<|im_start|>' + m['role'] + '\\n' + m['content'] + '<|im_end|>\\n' }}{% endfor %}"
    "{% if add_generation_prompt %}{{ '<|im_start|>assistant\\n' }}{% endif %}"
)
TEXTS = [
    "a<NEW>b <NEW2> c", "the quick <tool_call>{}</tool_call> fox", "<|im_start|>user\nIn 1999<|im_end|>", " <NEW> ", "<NEW><NEW2>",
    "na\u00efve e\u0301 \u65e5\u672c\u8a9e \U0001f600", "</think><|endoftext|>x",
]
ROW = [64, 352, 65, 66, 700, 12, 80]


def token(content, special=False, **more):
    return dict(content=content, lstrip=False, normalized=False, rstrip=False, single_word=False, special=special) | more


def around(first, last):
    single = [*({"SpecialToken": {"id": t, "type_id": 0}} for t in first), {"Sequence": {"id": "A", "type_id": 0}}]
    single += [{"SpecialToken": {"id": t, "type_id": 0}} for t in last]
    ids = {"<|endoftext|>": 700, "<|im_start|>": 701, "<|im_end|>": 702}
    special = {t: {"id": t, "ids": [ids[t]], "tokens": [t]} for t in (*first, *last)}
    return {"type": "TemplateProcessing", "single": single, "pair": [*single, {"Sequence": {"id": "B", "type_id": 1}}], "special_tokens": special}


BYTES = {"type": "ByteLevel", "add_prefix_space": True, "trim_offsets": False, "use_regex": True}
CLASS = {"tokenizer_class": "PreTrainedTokenizerFast"}
DECODER = {"707": token("<NEW>", True), "708": token("<NEW2>")}

# By name: whether it belongs to the small selection, and what differs from the plain model. `config` is
# tokenizer_config.json, `post` the post_processor, `files` more files, `added` more added tokens of tokenizer.json.
ADDED = {
    "plain": (True, {}),
    "tokenizer-json": (False, dict(added=[token("<NEW>", True) | {"id": 707}, token("<NEW2>") | {"id": 708}])),
    "tokenizer-json-flags": (False, dict(added=[token("<NEW>", True, rstrip=True) | {"id": 707}, token("<NEW2>", lstrip=True) | {"id": 708}])),
    "tokenizer-json-words": (False, dict(added=[token("NEW", single_word=True) | {"id": 707}])),
    "tokenizer-json-gap": (True, dict(added=[token("<NEW>", True) | {"id": 709}], refused="added_tokens")),
    "decoder": (True, dict(config={"added_tokens_decoder": DECODER})),
    "decoder-flags": (False, dict(config={"added_tokens_decoder": {"706": token("</think>", True), "707": token("<NEW>", rstrip=True)}})),
    "decoder-gap": (False, dict(config={"added_tokens_decoder": {"709": token("<NEW>", True)}}, refused="added_tokens_decoder")),
    "decoder-and-map": (False, dict(config={"added_tokens_decoder": DECODER}, files={"special_tokens_map.json": {"pad_token": "<NEW3>"}})),
    "decoder-and-added": (False, dict(config={"added_tokens_decoder": {"707": token("<NEW>")}}, files={"added_tokens.json": {"<NEW2>": 708}})),
    "named": (False, dict(config={"pad_token": "<NEW>", "unk_token": "<NEW2>"})),
    "named-object": (False, dict(config={"pad_token": {"__type": "AddedToken"} | token("<NEW>", True)})),
    "additional": (False, dict(config={"additional_special_tokens": ["<tool_call>", "<NEW>"]})),
    "extra-list": (False, dict(config={"extra_special_tokens": ["<NEW2>", "<NEW>"]})),
    "extra-names": (False, dict(config={"extra_special_tokens": {"image_token": "<NEW>"}})),
    "own-name": (False, dict(config={"image_token": "<NEW>"})),
    "map": (True, dict(files={"special_tokens_map.json": {"additional_special_tokens": ["<NEW>"], "pad_token": "<NEW2>"}})),
    "map-objects": (False, dict(files={"special_tokens_map.json": {"pad_token": token("<NEW2>"), "additional_special_tokens": ["<NEW>"]}})),
    "added-tokens": (True, dict(files={"added_tokens.json": {"<NEW2>": 708, "<NEW>": 707}})),
    "added-tokens-named": (False, dict(config={"pad_token": "<NEW>"}, files={"added_tokens.json": {"<NEW>": 707}})),
    "added-tokens-gap": (False, dict(files={"added_tokens.json": {"<NEW>": 708}}, refused="added_tokens.json")),
}
POST = {
    "post-template": (False, dict(post=around(["<|endoftext|>"], []))),
    "post-both": (False, dict(post=around(["<|endoftext|>"], ["<|im_end|>"]))),
    "post-sequence": (True, dict(post={"type": "Sequence", "processors": [BYTES, around(["<|endoftext|>"], [])]})),
    "post-roberta": (False, dict(post={"type": "RobertaProcessing", "sep": ["<|im_end|>", 702], "cls": ["<|endoftext|>", 700], "trim_offsets": True, "add_prefix_space": False})),
    "post-bytes": (False, dict(post=BYTES)),
    "add-bos": (True, dict(config={"add_bos_token": True, "bos_token": "<|endoftext|>"})),
    "add-both": (False, dict(config={"add_bos_token": True, "add_eos_token": True, "bos_token": "<|endoftext|>"})),
    "add-none": (False, dict(config={"add_bos_token": False, "bos_token": "<|endoftext|>"}, post=around(["<|endoftext|>"], []))),
}
HEADS = {
    "tied": (False, dict(tied=True)), "tied-copy": (False, dict(tied=True, head="copy")),
    "tied-other": (True, dict(tied=True, head="other")), "untied": (False, dict(tied=False)),
}


def weights(folder, tied=True, head=None):
    torch.manual_seed(1)
    config = LlamaConfig(
        vocab_size=712, hidden_size=32, intermediate_size=48, num_hidden_layers=1, num_attention_heads=2, num_key_value_heads=1,
        max_position_embeddings=128, tie_word_embeddings=tied, bos_token_id=None, eos_token_id=702,
    )
    config.initializer_range = 0.3
    LlamaForCausalLM(config).save_pretrained(folder)
    if head:
        tensors = load_file(folder / "model.safetensors")
        own = tensors["model.embed_tokens.weight"].clone()
        tensors["lm_head.weight"] = own if head == "copy" else own + 0.1 * torch.randn_like(own)
        save_file(tensors, folder / "model.safetensors", metadata={"format": "pt"})


def make(folder, added=(), config=None, files=None, post=None, refused=None, **head):
    folder.mkdir(parents=True)
    weights(folder, **head)
    file = json.loads((TOKENIZERS / "qwen.json").read_text())
    file["added_tokens"] += added
    file["post_processor"] = post
    settings = CLASS | {"eos_token": "<|im_end|>"} | (config or {})
    texts = {"tokenizer.json": file, "tokenizer_config.json": settings, "generation_config.json": {"eos_token_id": [702, 700]}}
    for name, text in (texts | (files or {})).items():
        (folder / name).write_text(json.dumps(text))
    (folder / "chat_template.jinja").write_text(TEMPLATE)
    (folder / "reference.json").write_text(json.dumps({"refused": refused} if refused else reference(folder)))


def reference(folder):
    tokenizer = AutoTokenizer.from_pretrained(folder)
    model = AutoModelForCausalLM.from_pretrained(folder, dtype=torch.float32)
    bare, whole = tokenizer("the", add_special_tokens=False)["input_ids"], tokenizer("the")["input_ids"]
    at = next(i for i in range(len(whole)) if whole[i : i + len(bare)] == bare)
    with torch.no_grad():
        log = model(torch.tensor([ROW])).logits.log_softmax(-1)[0]
    return dict(
        ids={text: tokenizer(text, add_special_tokens=False)["input_ids"] for text in TEXTS},
        before=whole[:at], after=whole[at + len(bare) :],
        special=sorted(i for i, t in tokenizer.added_tokens_decoder.items() if t.special),
        row=ROW, logprobs=[log[i, t].item() for i, t in enumerate(ROW[1:])],
    )


def main():
    logging.disable(logging.WARNING)
    out = pathlib.Path(sys.argv[1])
    for name, (small, what) in (ADDED | POST | HEADS).items():
        if small or "--all" in sys.argv:
            make(out / name, **what)


main()
