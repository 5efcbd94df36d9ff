"""Writes a Qwen2 model in the directory of a publisher as the file of llama.cpp.

    pip install gguf && python write_gguf.py DIRECTORY FILE

For tests: llama.cpp's own converter knows only tokenizers that somebody published.
"""

import json
import pathlib
import struct
import sys

import gguf
import numpy as np

PARTS = {
    "input_layernorm": "attn_norm",
    "self_attn.q_proj": "attn_q",
    "self_attn.k_proj": "attn_k",
    "self_attn.v_proj": "attn_v",
    "self_attn.o_proj": "attn_output",
    "post_attention_layernorm": "ffn_norm",
    "mlp.gate_proj": "ffn_gate",
    "mlp.up_proj": "ffn_up",
    "mlp.down_proj": "ffn_down",
}
KINDS = {"F32": np.dtype("<f4"), "F16": np.dtype("<f2")}


def tensors(path):
    """All tensors of a safetensors file, by name, in float32."""
    data = path.read_bytes()
    (length,) = struct.unpack("<Q", data[:8])
    head, body = json.loads(data[8 : 8 + length]), data[8 + length :]
    for name, entry in head.items():
        if name == "__metadata__":
            continue
        begin, end = entry["data_offsets"]
        if entry["dtype"] == "BF16":
            high = np.frombuffer(body[begin:end], "<u2").astype("<u4") << 16
            values = high.view("<f4")
        else:
            values = np.frombuffer(body[begin:end], KINDS[entry["dtype"]]).astype("<f4")
        yield name, values.reshape(entry["shape"])


def renamed(name):
    """What llama.cpp calls a tensor."""
    top = {"model.embed_tokens.weight": "token_embd.weight", "model.norm.weight": "output_norm.weight", "lm_head.weight": "output.weight"}
    if name in top:
        return top[name]
    _, _, layer, rest = name.split(".", 3)
    part, kind = rest.rsplit(".", 1)
    return f"blk.{layer}.{PARTS[part]}.{kind}"


def vocabulary(tokenizer):
    """The texts of all tokens, their kinds, and the merges."""
    ids = {i: (text, gguf.TokenType.NORMAL) for text, i in tokenizer["model"]["vocab"].items()}
    for added in tokenizer["added_tokens"]:
        kind = gguf.TokenType.CONTROL if added["special"] else gguf.TokenType.USER_DEFINED
        ids[added["id"]] = (added["content"], kind)
    texts, kinds = zip(*(ids[i] for i in range(len(ids))))
    return texts, kinds, [m if isinstance(m, str) else " ".join(m) for m in tokenizer["model"]["merges"]]


def main(directory, file):
    directory = pathlib.Path(directory)
    config = json.loads((directory / "config.json").read_text())
    out = gguf.GGUFWriter(file, "qwen2")
    out.add_context_length(config["max_position_embeddings"])
    out.add_embedding_length(config["hidden_size"])
    out.add_block_count(config["num_hidden_layers"])
    out.add_feed_forward_length(config["intermediate_size"])
    out.add_head_count(config["num_attention_heads"])
    out.add_head_count_kv(config["num_key_value_heads"])
    out.add_rope_freq_base(config.get("rope_theta") or config["rope_parameters"]["rope_theta"])
    out.add_layer_norm_rms_eps(config["rms_norm_eps"])
    out.add_file_type(gguf.LlamaFileType.ALL_F32)

    texts, kinds, merges = vocabulary(json.loads((directory / "tokenizer.json").read_text()))
    out.add_tokenizer_model("gpt2")
    out.add_tokenizer_pre("qwen2")
    out.add_token_list(texts)
    out.add_token_types(kinds)
    out.add_token_merges(merges)
    settings = json.loads((directory / "tokenizer_config.json").read_text())
    out.add_eos_token_id(texts.index(settings["eos_token"]))
    out.add_pad_token_id(texts.index(settings["pad_token"]))
    out.add_add_bos_token(False)
    out.add_chat_template((directory / "chat_template.jinja").read_text())

    for path in sorted(directory.glob("*.safetensors")):
        for name, values in tensors(path):
            out.add_tensor(renamed(name), np.ascontiguousarray(values))
    out.write_header_to_file()
    out.write_kv_data_to_file()
    out.write_tensors_to_file()
    out.close()


if __name__ == "__main__":
    main(*sys.argv[1:])
