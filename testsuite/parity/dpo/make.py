"""Writes ../testdata/dpo/qwen2.safetensors: what TRL's DPOTrainer computes for pairs of
completions with a small model of random weights and another one as the reference.

    python make.py [FOLDER]

The trainer makes the batch from text, so the tokens, the masks and the reference's
log-probabilities are its own. The file has these arrays; its metadata has the model's
config.json as `config`, beta, the loss, the mean margin and the accuracy.

    policy.NAME, reference.NAME  weights
    prompt.I, chosen.I, rejected.I  the tokens of pair I
    gradient.NAME                the derivative of the loss
"""

import json
import pathlib
import sys
import tempfile

import numpy
import torch
from datasets import Dataset
from safetensors.numpy import save_file
from tokenizers import Tokenizer, models, pre_tokenizers
from transformers import AutoConfig, AutoModelForCausalLM, PreTrainedTokenizerFast
from trl import DPOConfig, DPOTrainer

sys.path.insert(0, str(pathlib.Path(__file__).parent.parent / "golden"))
from make import uniform, weights, words  # noqa: E402

VOCABULARY, BETA = 40, 0.3
QWEN2 = dict(
    vocab_size=VOCABULARY, hidden_size=16, intermediate_size=24, num_hidden_layers=2, num_attention_heads=2,
    num_key_value_heads=1, max_position_embeddings=128, rms_norm_eps=1e-6,
    rope_parameters=dict(rope_type="default", rope_theta=10000.0), tie_word_embeddings=True,
)
# Tokens of the prompt, of the chosen and of the rejected completion, without its end.
LENGTHS = [(1, 1, 1), (3, 5, 2), (9, 2, 12), (2, 30, 25), (17, 4, 4)]


def tokenizer():
    names = [f"w{i}" for i in range(VOCABULARY - 2)] + ["<pad>", "</s>"]
    base = Tokenizer(models.WordLevel({name: i for i, name in enumerate(names)}, unk_token="w0"))
    base.pre_tokenizer = pre_tokenizers.WhitespaceSplit()
    return PreTrainedTokenizerFast(tokenizer_object=base, pad_token="<pad>", eos_token="</s>")


def text(seed, n):
    return " ".join(f"w{k}" for k in words(seed, n) % numpy.uint64(VOCABULARY - 2))


def pairs():
    for i, (prompt, chosen, rejected) in enumerate(LENGTHS):
        yield {
            "prompt": text(100 * i, prompt),
            "chosen": " " + text(100 * i + 33, chosen),
            "rejected": " " + text(100 * i + 66, rejected),
        }


def model(seed):
    made = AutoModelForCausalLM.from_config(AutoConfig.for_model("qwen2", **QWEN2), attn_implementation="eager").float()
    weights(made, seed)
    return made


def nudge(policy, seed):
    """Moves the policy a little away from the reference, as updates would."""
    for i, (_, parameter) in enumerate(sorted(policy.named_parameters())):
        u = uniform(seed + i, parameter.numel()).reshape(parameter.shape)
        with torch.no_grad():
            parameter.add_(torch.from_numpy(u * numpy.float32(0.03)))


def arrays(kind, named):
    return {f"{kind}.{name}": x.detach().numpy().copy() for name, x in named}


def main():
    torch.set_num_threads(1)
    torch.manual_seed(0)
    policy, reference = model(7000), model(7000)
    nudge(policy, 8000)
    out = arrays("policy", policy.named_parameters()) | arrays("reference", reference.named_parameters())
    config = policy.config.to_json_string(use_diff=False)
    with tempfile.TemporaryDirectory() as folder:
        args = DPOConfig(
            output_dir=folder, beta=BETA, per_device_train_batch_size=len(LENGTHS), gradient_checkpointing=False, bf16=False,
            use_cpu=True, report_to="none", max_length=None,
        )
        trainer = DPOTrainer(policy, ref_model=reference, args=args, train_dataset=Dataset.from_list(list(pairs())), processing_class=tokenizer())
        rows = list(trainer.train_dataset)
        batch = trainer.data_collator(rows)
        trainer.model.train()
        loss = trainer.compute_loss(trainer.model, batch)
        loss.backward()
        metrics = {name: values[-1] for name, values in trainer._metrics["train"].items()}
    for i, row in enumerate(rows):
        out |= {f"{kind}.{i}": numpy.array(row[f"{kind}_ids"], numpy.int32) for kind in ("prompt", "chosen", "rejected")}
    out |= arrays("gradient", ((name, p.grad) for name, p in policy.named_parameters()))
    numbers = dict(
        beta=BETA, loss=loss.item(), margin=float(metrics["rewards/margins"]), accuracy=float(metrics["rewards/accuracies"]),
        pairs=len(rows),
    )
    folder = pathlib.Path(sys.argv[1]) if len(sys.argv) > 1 else pathlib.Path(__file__).parent.parent / "testdata" / "dpo"
    folder.mkdir(parents=True, exist_ok=True)
    out = {name: numpy.ascontiguousarray(a) for name, a in out.items()}
    save_file(out, folder / "qwen2.safetensors", dict(config=config, numbers=json.dumps(numbers)))
    print(numbers, f"{sum(a.nbytes for a in out.values()) // 1024} kB")


if __name__ == "__main__":
    main()
