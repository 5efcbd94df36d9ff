"""Makes small models of random weights with transformers and writes what they
compute: NAME.safetensors for each, in ../testdata or in the folder that is named.

    pip install -r requirements.txt && python make.py [FOLDER]

A file has these arrays; its metadata has the model's config.json as `config`, the
seed of its weights as `seed`, and the loss.

    rows.I         the tokens of row I
    logprobs.I     log p of each of its tokens but the first
    scores.I       log p of every token of the vocabulary at some positions of the row,
    positions.I    which are these
    gradient.NAME  the derivative of the loss, the mean of -logprobs over all rows
    prompt.I       a prompt, and
    greedy.I       what the model makes of it when it always takes the likeliest token
"""

import pathlib
import sys

import numpy
import torch
from safetensors.numpy import save_file
from transformers import AutoConfig, AutoModelForCausalLM

LLAMA3 = dict(
    rope_type="llama3", rope_theta=500000.0, factor=8.0, low_freq_factor=1.0, high_freq_factor=4.0,
    original_max_position_embeddings=64,
)

# Sizes that are no multiple of a vector, groups of 1 to 3 query heads, heads that are
# not hidden_size / heads. The first model has frequencies that are kept, lowered and
# between the two, at rows far beyond its original positions.
MODELS = {
    "llama3": dict(
        model_type="llama", vocab_size=48, hidden_size=32, intermediate_size=40, num_hidden_layers=2, num_attention_heads=4,
        num_key_value_heads=2, head_dim=16, max_position_embeddings=2048, rms_norm_eps=1e-5, rope_parameters=LLAMA3,
        tie_word_embeddings=False,
    ),
    "llama3-tied": dict(
        model_type="llama", vocab_size=37, hidden_size=24, intermediate_size=36, num_hidden_layers=1, num_attention_heads=3,
        num_key_value_heads=3, max_position_embeddings=1024, rms_norm_eps=1e-5, rope_parameters=LLAMA3 | dict(factor=32.0),
        tie_word_embeddings=True,
    ),
    "smollm2": dict(
        model_type="llama", vocab_size=47, hidden_size=27, intermediate_size=45, num_hidden_layers=3, num_attention_heads=9,
        num_key_value_heads=3, head_dim=6, max_position_embeddings=2048, rms_norm_eps=1e-5,
        rope_parameters=dict(rope_type="default", rope_theta=100000.0), tie_word_embeddings=True,
    ),
    "mistral": dict(
        model_type="mistral", vocab_size=41, hidden_size=32, intermediate_size=44, num_hidden_layers=2, num_attention_heads=4,
        num_key_value_heads=1, max_position_embeddings=1024, rms_norm_eps=1e-5, sliding_window=1024,
        rope_parameters=dict(rope_type="default", rope_theta=10000.0), tie_word_embeddings=False,
    ),
    "qwen2": dict(
        model_type="qwen2", vocab_size=53, hidden_size=28, intermediate_size=40, num_hidden_layers=2, num_attention_heads=2,
        num_key_value_heads=1, max_position_embeddings=1024, rms_norm_eps=1e-6,
        rope_parameters=dict(rope_type="default", rope_theta=1000000.0), tie_word_embeddings=True,
    ),
    "qwen3": dict(
        model_type="qwen3", vocab_size=43, hidden_size=26, intermediate_size=38, num_hidden_layers=2, num_attention_heads=4,
        num_key_value_heads=2, head_dim=10, max_position_embeddings=1024, rms_norm_eps=1e-6,
        rope_parameters=dict(rope_type="default", rope_theta=1000000.0), tie_word_embeddings=False,
    ),
}

# The last row is long: many more positions than the scaled models had originally.
LENGTHS = [2, 17, 40, 510]


def words(seed, n):
    """The first n numbers of SplitMix64 from seed, 64 bits each."""
    with numpy.errstate(over="ignore"):
        z = numpy.uint64(seed) + numpy.arange(1, n + 1, dtype=numpy.uint64) * numpy.uint64(0x9E3779B97F4A7C15)
        z = (z ^ (z >> numpy.uint64(30))) * numpy.uint64(0xBF58476D1CE4E5B9)
        z = (z ^ (z >> numpy.uint64(27))) * numpy.uint64(0x94D049BB133111EB)
        return z ^ (z >> numpy.uint64(31))


def uniform(seed, n):
    """n numbers from -1 to 1, each a multiple of 2^-23: exact in float32."""
    return ((words(seed, n) >> numpy.uint64(40)).astype(numpy.int64) - (1 << 23)).astype(numpy.float32) / numpy.float32(1 << 23)


def weights(model, seed):
    """Fills model as the Go test fills its own: tensor i, in the order of their names,
    from seed + i. Norms lie around 1, biases and matrices around 0."""
    named = sorted(model.named_parameters())
    for i, (name, parameter) in enumerate(named):
        u = uniform(seed + i, parameter.numel()).reshape(parameter.shape)
        if name.endswith("norm.weight"):
            u = numpy.float32(1) + u * numpy.float32(0.25)
        elif name.endswith("embed_tokens.weight"):
            u = u * numpy.float32(1)
        elif parameter.dim() > 1:
            u = u * numpy.float32(0.375)
        else:
            u = u * numpy.float32(0.5)
        with torch.no_grad():
            parameter.copy_(torch.from_numpy(u))


def tokens(seed, n, vocabulary):
    return (words(seed, n) % numpy.uint64(vocabulary)).astype(numpy.int32)


def compute(settings, seed):
    settings = dict(settings)
    config = AutoConfig.for_model(settings.pop("model_type"), **settings)
    model = AutoModelForCausalLM.from_config(config, attn_implementation="eager").float().eval()
    weights(model, seed)
    out, total, count = {}, 0, sum(LENGTHS) - len(LENGTHS)
    for i, n in enumerate(LENGTHS):
        row = tokens(seed + 100 + i, n, config.vocab_size)
        ids = torch.from_numpy(row.astype(numpy.int64))[None]
        logprobs = torch.log_softmax(model(ids).logits[0], -1)
        chosen = logprobs[:-1].gather(1, ids[0, 1:, None])[:, 0]
        total = total - chosen.sum()
        positions = sorted({0, n // 2, n - 1})
        out |= {
            f"rows.{i}": row, f"logprobs.{i}": chosen.detach().numpy(), f"positions.{i}": numpy.array(positions, numpy.int32),
            f"scores.{i}": logprobs[positions].detach().numpy(),
        }
    loss = total / count
    loss.backward()
    for name, parameter in model.named_parameters():
        out[f"gradient.{name}"] = parameter.grad.numpy()
    for i, n in enumerate([1, 9, 90]):
        prompt = tokens(seed + 200 + i, n, config.vocab_size)
        out |= {f"prompt.{i}": prompt, f"greedy.{i}": greedy(model, prompt, 40)}
    return out, dict(config=config.to_json_string(use_diff=False), seed=str(seed), loss=repr(loss.item()))


def greedy(model, prompt, n):
    """The tokens of generate with its cache, as far as the likeliest token is ahead of
    the second by more than rounding."""
    ids = torch.from_numpy(prompt.astype(numpy.int64))[None]
    model.generation_config.eos_token_id = model.generation_config.pad_token_id = None
    made = model.generate(
        ids, attention_mask=torch.ones_like(ids), do_sample=False, max_new_tokens=n, use_cache=True, output_logits=True,
        return_dict_in_generate=True,
    )
    chosen = made.sequences[0, ids.shape[1] :].numpy().astype(numpy.int32)
    for i, logits in enumerate(made.logits):
        first, second = logits[0].topk(2).values.tolist()
        if first - second < 1e-3:
            return chosen[:i]
    return chosen


def main():
    torch.set_num_threads(1)
    torch.manual_seed(0)
    here = pathlib.Path(__file__).parent
    folder = pathlib.Path(sys.argv[1]) if len(sys.argv) > 1 else here.parent / "testdata"
    folder.mkdir(parents=True, exist_ok=True)
    for k, (name, settings) in enumerate(MODELS.items()):
        arrays, metadata = compute(settings, 1000 * (k + 1))
        arrays = {name: numpy.ascontiguousarray(a) for name, a in arrays.items()}
        save_file(arrays, folder / f"{name}.safetensors", metadata)
        made = [len(arrays[f"greedy.{i}"]) for i in range(3)]
        print(f"{name}: loss {metadata['loss']}, greedy tokens {made}, {sum(a.nbytes for a in arrays.values()) // 1024} kB")
        if min(made) < 16:
            sys.exit(f"{name}: too few greedy tokens are certain: take another seed")


if __name__ == "__main__":
    main()
