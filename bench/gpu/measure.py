"""Measures one shape of model: measure.py PROGRAM SHAPE WHAT WHO prints a line of JSON.

PROGRAM is the folder of the engine's program, SHAPE a name below, WHAT "lora" or "full", WHO "ours" (the engine's program)
or "plain" (a loop of transformers and PEFT on the same tokens). Weights are random: speed and memory don't depend on them.
Times are of the second half of the passes; the first warms up.
"""

import json
import os
import resource
import sys
import tempfile
import time

import torch
from transformers import AutoModelForCausalLM

program, name, what, who = sys.argv[1:]
sys.path.insert(0, program)
import computer  # of the engine's program
import decoding
import learner
import trunk

QWEN = {
    "model_type": "qwen2", "max_position_embeddings": 32768, "rope_theta": 1e6, "rms_norm_eps": 1e-6, "hidden_act": "silu",
}
SHAPES = {  # layers, hidden, feed-forward, heads, key heads, vocabulary, tied
    "0.5b": (24, 896, 4864, 14, 2, 151936, True),
    "1.5b": (28, 1536, 8960, 12, 2, 151936, True),
    "7b": (28, 3584, 18944, 28, 4, 152064, False),
    "tiny": (2, 64, 128, 4, 2, 500, True),
    "tiny-untied": (2, 64, 128, 4, 2, 500, False),
}
TINY = name.startswith("tiny")
ROWS, LENGTH = (4, 32) if TINY else (16, 512)
REPLIES, PROMPT, REPLY = (4, 16, 8) if TINY else (64, 256, 128)
PASSES = 2 if TINY else 6
RANK = 16
TARGETS = ["q_proj", "k_proj", "v_proj", "o_proj", "gate_proj", "up_proj", "down_proj"]
PEAKS = {"H200": 989e12, "H100": 989e12, "A100": 312e12, "L40S": 362e12, "4090": 165e12}  # dense BF16, as their data sheets say
ADAMW = {"rate": 1e-5, "scale": 1.0, "epsilon": 1e-8, "decay": 0.0, "beta1": 0.9, "rest1": 0.1, "correct1": 1.0, "beta2": 0.98, "rest2": 0.02, "correct2": 1.0, "update": 1}


# With several processes: the number of this one, that of all, and a folder that they share.
PLACE = json.loads(os.environ.get("GPU_BENCH_RANK", '[0, 1, ""]'))


class Link:
    own = PLACE[2]

    def tick(self):
        pass


def config():
    layers, hidden, forward, heads, kv, vocabulary, tied = SHAPES[name]
    return QWEN | {
        "num_hidden_layers": layers, "hidden_size": hidden, "intermediate_size": forward, "num_attention_heads": heads,
        "num_key_value_heads": kv, "vocab_size": vocabulary, "tie_word_embeddings": tied,
    }


def synchronize():
    if torch.cuda.is_available():
        torch.cuda.synchronize()


def timed(f):
    synchronize()
    began = time.monotonic()
    f()
    synchronize()
    return time.monotonic() - began


def mean_time(f):
    times = [timed(f) for _ in range(PASSES)]
    return sum(times[PASSES // 2 :]) / (PASSES - PASSES // 2)


def peak():
    """Bytes: of the GPU, or of the process where there is none."""
    if torch.cuda.is_available():
        return torch.cuda.max_memory_allocated()
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss << 10


def frame(t, kind):
    return kind, list(t.shape), bytearray(t.contiguous().numpy().tobytes())


def batch():
    generator = torch.Generator().manual_seed(1)
    return torch.randint(0, SHAPES[name][5], (ROWS, LENGTH), generator=generator, dtype=torch.int32)


def flops(parameters, embedding):
    """Of one token: 2 for each number of a product forward and 2 for the gradient of what goes in; 2 more for the gradient of
    the numbers where they are trained; attention over half of LENGTH."""
    layers, hidden = SHAPES[name][:2]
    products = parameters - embedding * (0 if SHAPES[name][6] else 1)
    passes = 3 if what == "full" else 2
    return passes * (2 * products + 2 * 2 * layers * hidden * LENGTH / 2)


def outcome(seconds, parameters):
    rate = ROWS * LENGTH / seconds
    device = torch.cuda.get_device_name() if torch.cuda.is_available() else "cpu"
    top = next((p for part, p in PEAKS.items() if part in device), None)
    embedding = SHAPES[name][5] * SHAPES[name][1]
    return {
        "shape": name, "what": what, "who": who, "device": device, "parameters": parameters, "update_tokens_per_second": rate,
        "mfu": rate * flops(parameters, embedding) / top if top else None, "update_peak_bytes": peak(),
    }


def plain():
    made = trunk.config(config())
    dtype = torch.bfloat16 if torch.cuda.is_available() else torch.float32
    with torch.device("cuda" if torch.cuda.is_available() else "cpu"):
        model = AutoModelForCausalLM.from_config(made, dtype=dtype if what == "lora" else torch.float32)
    parameters = sum(p.numel() for p in model.parameters())
    if what == "lora":
        from peft import LoraConfig, get_peft_model

        model = get_peft_model(model, LoraConfig(r=RANK, lora_alpha=2 * RANK, target_modules=TARGETS))
        for p in model.parameters():
            if p.requires_grad:
                p.data = p.data.float()
    trained = [p for p in model.parameters() if p.requires_grad]
    optimizer = torch.optim.AdamW(trained, lr=1e-5, betas=(0.9, 0.98), weight_decay=0.0)
    tokens = batch().long().to(next(model.parameters()).device)
    model.config.use_cache = False
    if ROWS * LENGTH * SHAPES[name][0] * SHAPES[name][1] * trunk.KEPT * 4 > trunk.MOST_KEPT:  # where the program computes again, too
        model.gradient_checkpointing_enable({"use_reentrant": False})
        model.enable_input_require_grads()
        model.train()

    def update():
        with torch.autocast(tokens.device.type, dtype, enabled=dtype != torch.float32):
            logits = model(input_ids=tokens).logits
        loss = torch.nn.functional.cross_entropy(logits[:, :-1].float().flatten(0, 1), tokens[:, 1:].flatten())
        loss.backward()
        torch.nn.utils.clip_grad_norm_(trained, 1.0)
        optimizer.step()
        optimizer.zero_grad(set_to_none=True)

    return outcome(mean_time(update), parameters)


def adapter(module):
    """Random matrices for all layers that are adapted."""
    out = {}
    for key, layer in module.named_modules():
        if isinstance(layer, torch.nn.Linear) and key.rsplit(".", 1)[-1] in TARGETS:
            out[f"{trunk.PREFIX}{key}.lora_A.weight"] = torch.randn(RANK, layer.in_features) * 0.02
            out[f"{trunk.PREFIX}{key}.lora_B.weight"] = torch.zeros(layer.out_features, RANK)
    return out


def learned(state):
    """A learner of random weights, and its number of parameters."""
    dtype = state.dtype if what == "lora" else torch.float32
    products = None if what == "lora" or state.dtype == torch.float32 else state.dtype
    made = trunk.Trunk(trunk.config(config()), state.device, dtype, state.link.tick, state.ranks, products)
    tensors = {trunk.PREFIX + key: p.detach() for key, p in made.module.named_parameters()}
    if not SHAPES[name][6]:
        weight = made.module.embed_tokens.weight
        tensors[trunk.HEAD] = torch.randn(weight.shape, dtype=dtype, device=weight.device) * 0.02
    if PLACE[1] > 1:  # no process has room for all numbers
        tensors = {key: torch.full((1,), 0.01).expand(t.shape) for key, t in tensors.items()}
    parameters = sum(p.numel() for p in tensors.values())
    held = learner.Learner("adapter0", False, state.device, state.dtype)
    if what == "full":
        held.whole(made, tensors)
    else:
        made.load(tensors)
        made.freeze()
        state.bases["base", state.ranks, ()] = made
        held.adapt(made, lora(), adapter(made.module))
    held.moments(None, None, False)
    state.learners[0] = held
    return held, parameters


def lora():
    return {"rank": RANK, "alpha": 2 * RANK, "targets": TARGETS}


def ours():
    state = computer.Computer(Link(), "cuda" if torch.cuda.is_available() else "cpu", 0, *PLACE[:2])
    held, parameters = learned(state)
    choices = ROWS * (LENGTH - 1)
    none = torch.zeros(0, (SHAPES[name][5] + 63) // 64 * 8, dtype=torch.uint8)
    rows = {
        "tokens": frame(batch(), "i4"), "lengths": frame(torch.full((ROWS,), LENGTH, dtype=torch.int32), "i4"),
        "scale": frame(torch.ones(choices), "f4"), "bits": frame(none, "u1"), "mask": frame(torch.full((choices,), -1, dtype=torch.int32), "i4"),
    }
    slope = {"by_logprob": frame(torch.full((choices,), -1 / choices), "f4"), "by_entropy": frame(torch.zeros(choices), "f4")}

    def update():
        held.begin()
        held.forward(rows, True)
        held.backward(slope)
        held.norm()
        held.step(ADAMW)

    out = outcome(mean_time(update), parameters)
    if PLACE[1] > 1:
        return several(out)
    if torch.cuda.is_available():
        torch.cuda.reset_peak_memory_stats()
    update()
    out.update(handed_over(state, none))
    return out


def several(out):
    """Rates of all processes together; each has as many rows as one alone would have."""
    out["ranks"] = PLACE[1]
    out["update_tokens_per_second"] *= PLACE[1]
    return out


def sequences(count, length, limit):
    generator = torch.Generator().manual_seed(2)
    prompts = torch.randint(0, SHAPES[name][5], (count * length,), generator=generator, dtype=torch.int32)
    join = [
        {"id": i + 1, "length": length, "given": 0, "temperature": 1.0, "top_p": 1.0, "seed": i, "first": 0, "limit": limit} for i in range(count)
    ]
    return join, {"prompts": frame(prompts, "i4"), "given": frame(torch.zeros(0, dtype=torch.int32), "i4")}


def handed_over(state, none):
    """From the end of an update to the first token of the new version, through files as the engine does it, and then the
    tokens a second of many replies at once."""
    with tempfile.TemporaryDirectory() as folder:
        body = {"config": config(), "decoder": True, "weights": os.path.join(folder, "weights")}
        if what == "lora":
            body |= {"base": "base", "lora": lora()}

        def first():
            state.answer("save", 0, {"weights": body["weights"]}, {})
            os.rename(body["weights"] + ".0", body["weights"])
            state.answer("open", 1, body, {})
            join, arrays = sequences(1, PROMPT, 1)
            state.answer("decode", 1, {"steps": 1, "seconds": 600, "tokens": 8192, "join": join}, arrays | {"bits": frame(none, "u1")})

        seconds = timed(first)
    decoder: decoding.Decoder = state.decoders[1]
    count = 0

    def replies():
        nonlocal count
        join, arrays = sequences(REPLIES, PROMPT, REPLY)
        count = len(decoder.decode({"steps": REPLY, "seconds": 120, "tokens": 8192, "join": join}, arrays | {"bits": frame(none, "u1")}))
        decoder.clear()

    timed(replies)
    return {"first_call_seconds": seconds, "replies": REPLIES, "decode_tokens_per_second": count / timed(replies), "decode_peak_bytes": peak()}


print(json.dumps(ours() if who == "ours" else plain()))
