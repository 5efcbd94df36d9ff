"""Makes small models of random weights with transformers, puts adapters of PEFT's on them,
and writes what both compute to ../testdata: peft.safetensors, and tokens_tied.safetensors
and tokens_untied.safetensors of adapters that train rows of tokens, too:

    pip install torch==2.13.0 transformers==5.23.0 peft==0.21.2 safetensors==0.8.0
    python lora.py

The arrays are base.NAME and adapter.NAME, the tensors under the names of the files that
the two libraries write; rows.I, tokens; logprobs.I, log p of each of them but the first;
gradient.NAME, the derivative of the loss, the mean of -logprobs over all rows, by a tensor
of the adapter. The metadata has config.json and adapter_config.json, and the loss.

    python lora.py DIRECTORY

loads the adapters that the Go test wrote there (FULGURITE_PEFT_WRITE=DIRECTORY) with PEFT
and compares their log-probabilities with those of the files.
"""

import json
import pathlib
import sys
import tempfile

import torch
from peft import LoraConfig, PeftModel, get_peft_model
from safetensors import safe_open
from safetensors.torch import load_file, save_file
from transformers import LlamaConfig, LlamaForCausalLM

FILES = pathlib.Path(__file__).parent.parent / "testdata"
LENGTHS = [2, 17, 40]
TOKENS = [21, 3, 8]
KINDS = {  # by the name of the file: whether embeddings are tied, and the field trainable_token_indices
    "peft": (True, None), "tokens_tied": (True, TOKENS), "tokens_untied": (False, {"embed_tokens": TOKENS, "lm_head": TOKENS}),
}


def base(config):
    torch.manual_seed(5)
    model = LlamaForCausalLM._from_config(config, attn_implementation="eager").float().eval()
    with torch.no_grad():
        for name, p in sorted(model.named_parameters()):
            p.copy_(1 + 0.2 * torch.randn_like(p) if "norm" in name else 0.3 * torch.randn_like(p))
    return model


def logprobs(model, row):
    ids = row.long()[None]
    return torch.log_softmax(model(ids).logits[0, :-1], -1).gather(1, ids[0, 1:, None])[:, 0]


def make(kind):
    tied, tokens = KINDS[kind]
    config = LlamaConfig(
        vocab_size=29, hidden_size=24, intermediate_size=36, num_hidden_layers=2, num_attention_heads=4, num_key_value_heads=2,
        head_dim=6, max_position_embeddings=64, rms_norm_eps=1e-5, tie_word_embeddings=tied,
    )
    model = base(config)
    arrays = {f"base.{n}": p.detach().clone().contiguous() for n, p in model.named_parameters()}
    targets = ["q_proj", "k_proj", "v_proj", "o_proj", "gate_proj", "up_proj", "down_proj"]
    model = get_peft_model(model, LoraConfig(r=3, lora_alpha=5, target_modules=targets, task_type="CAUSAL_LM", trainable_token_indices=tokens))
    with torch.no_grad():
        for name, p in sorted(model.named_parameters()):
            if "lora_B" in name or "trainable_tokens_delta" in name:
                p.copy_(0.2 * torch.randn_like(p))
    with tempfile.TemporaryDirectory() as folder:
        model.save_pretrained(folder)
        adapter_config = pathlib.Path(folder, "adapter_config.json").read_text()
        saved = load_file(pathlib.Path(folder, "adapter_model.safetensors"))
    arrays |= {f"adapter.{n}": p for n, p in saved.items()}
    total = 0
    for i, n in enumerate(LENGTHS):
        row = torch.randint(config.vocab_size, (n,), dtype=torch.int32)
        got = logprobs(model, row)
        total = total - got.sum()
        arrays |= {f"rows.{i}": row, f"logprobs.{i}": got.detach()}
    loss = total / (sum(LENGTHS) - len(LENGTHS))
    loss.backward()
    for name, p in model.named_parameters():
        if p.requires_grad:
            arrays["gradient." + name.replace(".default", "")] = p.grad.contiguous()
    file = FILES / f"{kind}.safetensors"
    save_file(arrays, file, {"config": config.to_json_string(use_diff=False), "adapter_config": adapter_config, "loss": repr(loss.item())})
    print(f"loss {loss.item()}, {file.stat().st_size} bytes of {file.name}")


def compare(kind, folder):
    with safe_open(FILES / f"{kind}.safetensors", "pt") as f:
        arrays, metadata = {k: f.get_tensor(k) for k in f.keys()}, f.metadata()
    model = base(LlamaConfig(**json.loads(metadata["config"])))
    model = PeftModel.from_pretrained(model, folder).eval()
    worst = max(
        (logprobs(model, arrays[f"rows.{i}"]) - arrays[f"logprobs.{i}"]).abs().max().item() for i in range(len(LENGTHS))
    )
    print(f"PEFT, given {folder}: at most {worst} from {kind}.safetensors")
    return worst > 1e-5


torch.set_num_threads(1)
if len(sys.argv) > 1:
    sys.exit(any([compare(kind, pathlib.Path(sys.argv[1], kind)) for kind in KINDS]))
for kind in KINDS:
    make(kind)
