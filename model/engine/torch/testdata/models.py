"""Writes small models of random weights, as transformers does: python models.py DIRECTORY. For each it writes, beside the
model, tokens and the log-probabilities that transformers gives them."""

import json
import os
import sys

import torch
from transformers import CONFIG_MAPPING, AutoModelForCausalLM

COMMON = {
    "vocab_size": 67, "hidden_size": 32, "intermediate_size": 48, "num_hidden_layers": 2, "num_attention_heads": 4,
    "num_key_value_heads": 2, "head_dim": 8, "max_position_embeddings": 64, "tie_word_embeddings": False, "pad_token_id": 0,
    "bos_token_id": 1, "eos_token_id": 2,
}
KINDS = {
    "gemma2": {"sliding_window": 4, "query_pre_attn_scalar": 8, "tie_word_embeddings": True, "final_logit_softcapping": 3.0},
    "phi3": {"sliding_window": 4},
    "olmo2": {},
    "granite": {"logits_scaling": 3.0, "attention_multiplier": 0.3, "residual_multiplier": 0.5},
    "gpt_neox": {"rotary_pct": 0.5, "hidden_dropout": 0.1},
    "mixtral": {"num_local_experts": 4, "num_experts_per_tok": 2},
    "qwen3_moe": {"num_experts": 4, "num_experts_per_tok": 2, "moe_intermediate_size": 16},
    "mamba": {"state_size": 8},
    "glm4": {"vocab_size": 16000, "hidden_size": 256},  # large enough to be seen in a process
}

torch.manual_seed(0)
for kind, more in KINDS.items():
    model = AutoModelForCausalLM.from_config(CONFIG_MAPPING[kind](**{**COMMON, **more})).float().eval()
    for p in model.parameters():
        p.data.add_(torch.randn_like(p) * 0.05)
    directory = os.path.join(sys.argv[1], kind)
    # Mixtral's are cut into several files.
    model.save_pretrained(directory, max_shard_size="100KB" if kind == "mixtral" else "1GB")
    tokens = torch.randint(3, 67, (1, 20))
    with torch.no_grad():
        log = torch.log_softmax(model(tokens).logits[0, :-1], -1)
    logprobs = log.gather(-1, tokens[0, 1:, None])[:, 0]
    with open(os.path.join(directory, "expected.json"), "w") as f:
        json.dump({"tokens": tokens[0].tolist(), "logprobs": logprobs.tolist()}, f)
