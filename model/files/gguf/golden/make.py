"""Writes goldens for package gguf; README.md says which."""

import hashlib
import json
import pathlib

import gguf
import numpy as np
from gguf import GGMLQuantizationType as Type
from gguf import quants

OUT = pathlib.Path(__file__).parent.parent / "testdata"
ROWS, WIDTH = 3, 512
# Where a block has numbers of 16 bits, which random bytes would make infinite at times.
HALVES = {
    Type.Q4_0: [0], Type.Q4_1: [0, 2], Type.Q5_0: [0], Type.Q5_1: [0, 2], Type.Q8_0: [0],
    Type.Q4_K: [0, 2], Type.Q5_K: [0, 2], Type.Q6_K: [208],
}


def stored(rng, kind):
    """Random bytes of a tensor of ROWS times WIDTH numbers."""
    if kind == Type.F32:
        return rng.standard_normal((ROWS, WIDTH), dtype=np.float32)
    if kind == Type.F16:
        return rng.standard_normal((ROWS, WIDTH), dtype=np.float32).astype(np.float16)
    if kind == Type.BF16:
        return quants.quantize(rng.standard_normal((ROWS, WIDTH), dtype=np.float32), kind)
    numbers, size = gguf.GGML_QUANT_SIZES[kind]
    blocks = rng.integers(0, 256, (ROWS * WIDTH // numbers, size), dtype=np.uint8)
    for at in HALVES[kind]:
        halves = (rng.standard_normal(len(blocks)) * 10.0 ** rng.integers(-7, 2, len(blocks))).astype(np.float16)
        blocks[:, at : at + 2] = halves.view(np.uint8).reshape(-1, 2)
    return blocks.reshape(ROWS, -1)


def sha256(numbers):
    return hashlib.sha256(np.ascontiguousarray(numbers).tobytes()).hexdigest()


def main():
    rng = np.random.default_rng(1)
    golden = {"decoded": {}}
    out = gguf.GGUFWriter(OUT / "blocks.gguf", "llama")
    out.add_block_count(7)
    out.add_rope_freq_base(100000.0)
    out.add_layer_norm_rms_eps(1e-5)
    out.add_token_list(["a", "Ġé", "<|end|>"])
    out.add_token_types([1, 1, 3])
    out.add_add_bos_token(True)
    for kind in [Type.F32, Type.F16, Type.BF16, *HALVES]:
        data = stored(rng, kind)
        raw = None if kind in (Type.F32, Type.F16) else kind
        out.add_tensor(kind.name, data, raw_dtype=raw)
        golden["decoded"][kind.name] = sha256(quants.dequantize(data, kind).astype("<f4"))
    out.write_header_to_file()
    out.write_kv_data_to_file()
    out.write_tensors_to_file()
    out.close()

    # What is quantized is the F32 tensor, with rows of zeros and of one outlier.
    numbers = np.random.default_rng(2).standard_normal((64, 32), dtype=np.float32)
    numbers *= (10.0 ** np.random.default_rng(3).integers(-9, 4, (64, 1))).astype(np.float32)
    numbers[5], numbers[6] = 0, 0
    numbers[6, 3] = -5
    golden["numbers"] = numbers.view(np.uint32).ravel().tolist()
    golden["encoded"] = {
        "F16": sha256(numbers.astype("<f2")),
        "BF16": sha256(quants.quantize(numbers, Type.BF16)),
        "Q8_0": sha256(quants.quantize(numbers, Type.Q8_0)),
    }
    (OUT / "blocks.json").write_text(json.dumps(golden) + "\n")


if __name__ == "__main__":
    main()
