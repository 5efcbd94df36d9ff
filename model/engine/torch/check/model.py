"""Writes a small model of a type that only transformers knows, with a tokenizer of bytes: python model.py DIRECTORY"""

import json
import os
import sys

import torch
from tokenizers import Tokenizer, decoders, models, pre_tokenizers
from transformers import AutoModelForCausalLM, Phi3Config

directory = sys.argv[1]
alphabet = sorted(pre_tokenizers.ByteLevel.alphabet())
tokenizer = Tokenizer(models.BPE(vocab={c: i for i, c in enumerate(alphabet)}, merges=[]))
tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=True)
tokenizer.decoder = decoders.ByteLevel()
tokenizer.add_special_tokens(["<|im_start|>", "<|im_end|>"])
torch.manual_seed(0)
AutoModelForCausalLM.from_config(Phi3Config(
    vocab_size=264, hidden_size=64, intermediate_size=96, num_hidden_layers=2, num_attention_heads=4, num_key_value_heads=2,
    max_position_embeddings=256, sliding_window=16, pad_token_id=0, bos_token_id=256, eos_token_id=257,
)).save_pretrained(directory)
tokenizer.save(os.path.join(directory, "tokenizer.json"))
template = (
    "{% for message in messages %}{{ '<|im_start|>' + message['role'] + '\n' + message['content'] + '<|im_end|>' + '\n' }}{% endfor %}"
    "{% if add_generation_prompt %}{{ '<|im_start|>assistant\n' }}{% endif %}"
)
with open(os.path.join(directory, "tokenizer_config.json"), "w") as f:
    json.dump({"eos_token": "<|im_end|>", "chat_template": template}, f)
