"""Keys and values of the sequences that are being decoded."""

import torch

STRIDE = 128  # positions by which room grows


class Cache:
    """One slot for each sequence. A model of transformers calls update for each layer, with the slots and positions that
    at or among said before. What was never written is 0: behind a mask it counts nothing, as long as it is finite."""

    def __init__(self):
        self.keys, self.values = {}, {}  # by layer, [slots, heads, positions, H]
        self.slots, self.length = 0, 0

    def reserve(self, slots, length):
        """Makes room; what is there is kept."""
        if slots > self.slots:
            self.slots = max(slots, 1 << (slots - 1).bit_length())
        if length > self.length:
            self.length = -(-max(length, self.length * 5 // 4) // STRIDE) * STRIDE
        for held in (self.keys, self.values):
            for layer, old in held.items():
                if old.shape[0] < self.slots or old.shape[2] < self.length:
                    held[layer] = old.new_zeros((self.slots, old.shape[1], self.length, old.shape[3]))
                    held[layer][: old.shape[0], :, : old.shape[2]] = old

    def at(self, first, count, start, width):
        """What comes next are tokens from position start on of count sequences from slot first on, which see width positions."""
        self.part, self.start, self.positions, self.width = slice(first, first + count), start, None, width

    def among(self, positions, width):
        """What comes next is one token, at its own position, of each of the first sequences."""
        self.part, self.positions, self.width = slice(0, len(positions)), positions, width
        self.rows = torch.arange(len(positions), device=positions.device)

    def update(self, keys, values, layer, *_, **__):
        out = []
        for new, held in ((keys, self.keys), (values, self.values)):
            if layer not in held:
                held[layer] = new.new_zeros((self.slots, new.shape[1], self.length, new.shape[3]))
            kept = held[layer]
            if self.positions is None:
                kept[self.part, :, self.start : self.start + new.shape[2]] = new
            else:
                kept[self.rows, :, self.positions] = new[:, :, 0]
            out.append(kept[self.part, :, : self.width])
        return out

    def copy(self, source, target, length):
        """Has slot target begin as source does, and forget the rest of what it held."""
        for held in (self.keys, self.values):
            for kept in held.values():
                kept[target, :, :length] = kept[source, :, :length]
                kept[target, :, length:] = 0

    def empty(self, first, count):
        for held in (self.keys, self.values):
            for kept in held.values():
                kept[first : first + count] = 0
