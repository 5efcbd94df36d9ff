"""The moments of AdamW, in F32 or in 8 bits."""

import math

import torch

BLOCK = 256  # numbers of a row that share a scale
LEAST = 4096  # a tensor of fewer numbers, or of rank 1, stays in F32
DECADES = 7
PART = 1 << 24  # numbers that are worked on at a time


def table(signed):
    """The numbers that codes stand for, as parts of a block's largest, in rising order: in each decade below 1 half as
    many as in the one above, as in the dynamic data type of Dettmers et al., 8-bit Optimizers via Block-wise Quantization
    (arXiv:2110.02861). Without a sign there are twice as many. Package model/files/checkpoint has the same table."""
    rising = [0.0]
    for decade in reversed(range(DECADES)):
        count = 1 << (DECADES - (1 if signed else 0) - decade)
        rising += [(0.1 + 0.9 * (k + 1) / count) / 10**decade for k in range(count)]
    rising = [-x for x in reversed(rising[1:])] + rising if signed else rising
    return torch.tensor(rising, dtype=torch.float64).float()


class Moments:
    """One moment of each tensor, worked on as rows [R, C]: means, or variances, whose roots are what codes stand for."""

    def __init__(self, signed, device):
        self.signed, self.device = signed, device
        self.numbers = table(signed).to(device)
        self.held = {}  # by name: F32 [R, C], or codes [R, C] and scales [R, blocks]

    def begin(self, name, own, parameter, eight, values=None):
        """Makes room for the rows of a parameter that are this rank's own, with zeros or with values."""
        if not (eight and parameter.dim() > 1 and parameter.numel() >= LEAST):
            made = torch.zeros_like(rows(own), dtype=torch.float32)
            self.held[name] = made if values is None else made.copy_(rows(values))
            return
        codes = torch.full_like(rows(own), ZERO if self.signed else 0, dtype=torch.uint8)
        scales = torch.zeros((codes.shape[0], -(-codes.shape[1] // width(codes))), device=self.device)
        self.held[name] = codes, scales
        if values is not None:
            for part in portions(codes):
                self.write(name, part, rows(values)[part].to(self.device, torch.float32), None)

    def read(self, name, part):
        """Rows in F32; those that are held so are the memory itself."""
        if not isinstance(self.held[name], tuple):
            return self.held[name][part]
        codes, scales = (x[part] for x in self.held[name])
        x = joined(blocks(self.numbers[codes.int()]) * scales[..., None], codes.shape[1])
        return x if self.signed else x * x

    def write(self, name, part, x, noise):
        """Keeps rows. noise is a generator that decides whether to round up or down, so that the mean is right: else no
        change of less than half a code would ever count. None rounds to the nearest, which leaves what was read as it is."""
        if not isinstance(self.held[name], tuple):
            return  # x is the memory itself
        y = blocks(x if self.signed else x.sqrt())
        scale = y.abs().amax(-1)
        codes, scales = self.held[name]
        scales[part] = scale
        codes[part] = joined(self.code(y / torch.where(scale > 0, scale, 1)[..., None], noise), x.shape[1])

    def code(self, y, noise):
        low = (torch.searchsorted(self.numbers, y.contiguous(), right=True) - 1).clamp_(0, len(self.numbers) - 2)
        below, above = self.numbers[low], self.numbers[low + 1]
        if noise is None:
            up = y - below >= above - y
        else:
            up = torch.rand(y.shape, generator=noise, device=y.device) < (y - below) / (above - below)
        if not self.signed:
            up |= (low == 0) & (y > 0)  # or a step would divide by next to nothing
        return (low + up).to(torch.uint8)

    def whole(self, name, like):
        """What is held of a tensor, in F32."""
        return torch.cat([self.read(name, part) for part in portions(rows(like))]).view(like.shape)


ZERO = (1 << DECADES) - 1  # the code of 0 where there is a sign


def rows(tensor):
    return tensor.reshape(tensor.shape[0], math.prod(tensor.shape[1:]))  # also of no rows


def portions(matrix):
    """Slices of rows of at most PART numbers."""
    count = max(1, PART // max(1, matrix.shape[1]))
    return [slice(at, at + count) for at in range(0, max(1, matrix.shape[0]), count)]


def width(matrix):
    """Numbers of a block."""
    return min(BLOCK, max(1, matrix.shape[1]))


def blocks(matrix):
    """[R, C] as [R, blocks, width], the last block of a row filled with zeros."""
    return torch.nn.functional.pad(matrix, (0, -matrix.shape[1] % width(matrix))).unflatten(1, (-1, width(matrix)))


def joined(y, count):
    """The inverse of blocks."""
    return y.flatten(1)[:, :count]
