"""Writes goldens for package convert; README.md says which."""

import gzip
import hashlib
import json
import pathlib
import tempfile

import gguf
import numpy as np
import torch
import transformers
from gguf import GGMLQuantizationType as Type
from gguf import TokenType, quants

HERE = pathlib.Path(__file__).parent
OUT = HERE.parent / "testdata"
TOKENIZERS = HERE.parent.parent / "tokenizer" / "testdata"
LAYERS, FEED, ROWS = 2, 96, 712
# Tokenizer, its name in llama.cpp, the types of the matrices in turn, and the sizes:
# hidden, heads, heads of keys and values, and of a head, which transformers takes to be
# 128 in a qwen3.
MODELS = {
    "llama": ("llama3", "llama-bpe", [Type.Q4_0, Type.Q8_0, Type.Q5_1, Type.Q4_1, Type.Q5_0], 64, 4, 2, 16),
    "qwen2": ("qwen", "qwen2", [Type.F16], 32, 2, 1, 16),
    "qwen3": ("qwen", "qwen2", [Type.BF16, Type.F32], 16, 2, 1, 128),
}


def shapes(kind):
    hidden, heads, kv, dim = MODELS[kind][3:]
    yield "token_embd.weight", (ROWS, hidden)
    for layer in range(LAYERS):
        b = f"blk.{layer}."
        yield b + "attn_norm.weight", (hidden,)
        for part, rows in [("q", heads * dim), ("k", kv * dim), ("v", kv * dim)]:
            yield b + f"attn_{part}.weight", (rows, hidden)
            if kind == "qwen2":
                yield b + f"attn_{part}.bias", (rows,)
        if kind == "qwen3":
            yield b + "attn_q_norm.weight", (dim,)
            yield b + "attn_k_norm.weight", (dim,)
        yield b + "attn_output.weight", (hidden, heads * dim)
        yield b + "ffn_norm.weight", (hidden,)
        yield b + "ffn_gate.weight", (FEED, hidden)
        yield b + "ffn_up.weight", (FEED, hidden)
        yield b + "ffn_down.weight", (hidden, FEED)
    yield "output_norm.weight", (hidden,)
    if kind == "qwen2":
        yield "output.weight", (ROWS, hidden)


def vocabulary(out, name, pre):
    tokenizer = json.loads((TOKENIZERS / f"{name}.json").read_text())
    tokens = {i: (text, TokenType.NORMAL) for text, i in tokenizer["model"]["vocab"].items()}
    for added in tokenizer["added_tokens"]:
        tokens[added["id"]] = (added["content"], TokenType.CONTROL if added["special"] else TokenType.USER_DEFINED)
    for i in range(ROWS):
        tokens.setdefault(i, (f"[PAD{i}]", TokenType.UNUSED))
    texts, kinds = zip(*(tokens[i] for i in range(ROWS)))
    out.add_tokenizer_model("gpt2")
    out.add_tokenizer_pre(pre)
    out.add_token_list(texts)
    out.add_token_types(kinds)
    out.add_token_merges([m if isinstance(m, str) else " ".join(m) for m in tokenizer["model"]["merges"]])
    special = [a["id"] for a in tokenizer["added_tokens"] if a["special"]]
    out.add_bos_token_id(special[0])
    out.add_eos_token_id(special[1])
    out.add_eot_token_id(special[2])
    out.add_chat_template("{% for m in messages %}{{ m.content }}{% endfor %}")


def write(path, kind):
    name, pre, types, hidden, heads, kv, dim = MODELS[kind]
    out = gguf.GGUFWriter(path, kind)
    out.add_context_length(128)
    out.add_embedding_length(hidden)
    out.add_block_count(LAYERS)
    out.add_feed_forward_length(FEED)
    out.add_head_count(heads)
    out.add_head_count_kv(kv)
    out.add_key_length(dim)
    out.add_value_length(dim)
    out.add_rope_dimension_count(dim)
    out.add_rope_freq_base(50000.0)
    out.add_layer_norm_rms_eps(1e-6)
    vocabulary(out, name, pre)
    rng = np.random.default_rng(len(kind) + ord(kind[-1]))
    for i, (name, shape) in enumerate(shapes(kind)):
        scale = 1.0 if name == "token_embd.weight" else 0.3
        numbers = rng.standard_normal(shape, dtype=np.float32) * np.float32(scale)
        if len(shape) == 1:
            out.add_tensor(name, numbers + np.float32("norm" in name))
            continue
        store = types[i % len(types)]
        raw = None if store in (Type.F32, Type.F16) else store
        out.add_tensor(name, quants.quantize(numbers, store), raw_dtype=raw)
    out.write_header_to_file()
    out.write_kv_data_to_file()
    out.write_tensors_to_file()
    out.close()


def main():
    OUT.mkdir(exist_ok=True)
    prompt = [5, 300, 17, 42, 698, 7, 7, 123]
    for kind in MODELS:
        with tempfile.TemporaryDirectory() as folder:
            path = pathlib.Path(folder) / f"{kind}.gguf"
            write(path, kind)
            (OUT / f"{kind}.gguf.gz").write_bytes(gzip.compress(path.read_bytes(), mtime=0))
            model = transformers.AutoModelForCausalLM.from_pretrained(folder, gguf_file=path.name, dtype=torch.float32)
        model.generation_config.eos_token_id = None
        said = model.generate(torch.tensor([prompt]), max_new_tokens=24, do_sample=False)[0].tolist()
        tensors = {
            name: hashlib.sha256(t.detach().numpy().astype("<f4").tobytes()).hexdigest()
            for name, t in model.state_dict().items()
            if name != "lm_head.weight" or not model.config.tie_word_embeddings
        }
        golden = {"prompt": prompt, "said": said[len(prompt) :], "tensors": tensors}
        (OUT / f"{kind}.json").write_text(json.dumps(golden, indent=1) + "\n")


if __name__ == "__main__":
    main()
