"""The noise that samplers add to logits, as in package model (noise.go): a function of seed, index and token alone."""

import torch

GOLDEN = 0x9E3779B97F4A7C15  # the increment of SplitMix64
FACTORS = (0xBF58476D1CE4E5B9, 0x94D049BB133111EB)  # of its finalizer
WORD = (1 << 64) - 1


def signed(x):
    """The int64 of the same 64 bits."""
    return x - (1 << 64) if x >> 63 else x


def right(x, count):
    """x shifted right, with zeros from the left also where it is a tensor of negative numbers."""
    return (x >> count) & ((1 << (64 - count)) - 1)


def mixed(x):
    """The finalizer of SplitMix64 of a Python integer."""
    for shift, factor in zip((30, 27), FACTORS):
        x = ((x ^ x >> shift) * factor) & WORD
    return x ^ x >> 31


def states(seeds, indices, device):
    """What the noise of each choice begins with, [n]: indices counts the tokens that its request has sampled."""
    made = [signed(mixed((mixed(seed) + index * GOLDEN) & WORD)) for seed, index in zip(seeds, indices)]
    return torch.tensor(made, dtype=torch.int64, device=device)


def gumbel(states, vocabulary):
    """Standard Gumbel noise, [n, vocabulary]. Products of int64 wrap, as those of uint64 do."""
    x = torch.arange(1, vocabulary + 1, dtype=torch.int64, device=states.device) * signed(GOLDEN)
    x = states[:, None] + x
    for shift, factor in zip((30, 27), FACTORS):
        x = (x ^ right(x, shift)) * signed(factor)
    x = right(x ^ right(x, 31), 12)
    u = (x.double() + 0.5) * 2.0**-52
    return -torch.log(-torch.log(u)).float()
