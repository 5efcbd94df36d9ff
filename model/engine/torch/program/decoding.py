"""Sampling from one version: many sequences at once, which join and leave between requests."""

import contextlib
import time

import torch

import noise
from cache import Cache
from connection import Refused


class Sequence:
    """One reply in the making. Its noise counts tokens from first on."""

    def __init__(self, about, prompt, given):
        self.id, self.prompt, self.given = about["id"], prompt, given
        self.temperature, self.top_p = about["temperature"], about["top_p"]
        self.seed, self.first = about["seed"], about["first"]
        self.limit, self.stop = about["limit"], frozenset(about.get("stop") or ())
        self.count, self.last, self.ended = 0, None, False
        self.sampled = []
        self.beginning = None  # the hidden state that the first token is chosen from

    @property
    def scale(self):
        return 1 / self.temperature if self.temperature > 0 else 1.0

    @property
    def nucleus(self):
        return 0 < self.top_p < 1 and self.temperature > 0 and self.given is None

    def position(self):
        """That of the token sampled last."""
        return len(self.prompt) + self.count - 1

    def accept(self, token):
        self.last, self.count = token, self.count + 1
        self.sampled.append(token)
        self.ended = token in self.stop or self.count == self.limit


class Decoder:
    """Samples from the model of a learner. The sequence in running[i] has slot i of the cache."""

    def __init__(self, learner):
        self.learner = learner
        self.clear()

    def clear(self):
        self.running, self.cache = [], Cache()

    @torch.no_grad()
    def decode(self, body, arrays):
        """Takes sequences in, lets others go, and samples up to body["steps"] tokens of each: the ids of sequences, and
        for each the token, its log-probability, and whether it was the only one, in the order of sampling."""
        self.learner.activate()
        try:
            self.leave(set(body.get("leave") or ()))
            self.join(body.get("join") or (), arrays, body["tokens"])
            return self.advance(body, arrays)
        except BaseException:
            self.clear()  # nobody can say what is in it
            raise

    def advance(self, body, arrays):
        sampled, until = [], time.monotonic() + body["seconds"]
        masks = None
        if body.get("masked"):
            masks = dict(zip(body["masked"], body["masks"])), self.learner.tensor(arrays["bits"])
        for step in range(body["steps"]):
            if not self.running or step and time.monotonic() > until:
                break
            sampled += self.choose(self.hidden(), masks)
            self.leave({s.id for s in self.running if s.ended})
            masks = None
        return sampled

    def leave(self, ids):
        for slot in reversed(range(len(self.running))):
            if self.running[slot].id not in ids:
                continue
            last = self.running.pop()
            if slot < len(self.running):
                self.cache.copy(len(self.running), slot, last.position() if last.count else len(last.prompt))
                self.running[slot] = last
        if not self.running:
            self.cache = Cache()

    # The prompts of new sequences.

    def join(self, new, arrays, budget):
        """Reads prompts, each once where several begin alike to the end."""
        if not new:
            return
        tokens = self.learner.tensor(arrays["prompts"]).tolist()
        given = self.learner.tensor(arrays["given"]).tolist()
        known = {tuple(s.prompt): slot for slot, s in enumerate(self.running)}
        fresh, again = [], []
        for about in new:
            prompt, tokens = tokens[: about["length"]], tokens[about["length"] :]
            own, given = given[: about["given"]], given[about["given"] :]
            s = Sequence(about, prompt, own or None)
            key = tuple(prompt)
            (again if key in known else fresh).append(s)
            known.setdefault(key, None)
        fresh.sort(key=lambda s: len(s.prompt))
        self.cache.reserve(len(self.running) + len(new), max(len(s.prompt) for s in fresh + again))
        first = len(self.running)
        self.running += fresh
        at = first
        while at < len(self.running):
            count = 1
            while at + count < len(self.running) and (count + 1) * len(self.running[at + count].prompt) <= budget:
                count += 1
            self.read(at, count, budget)
            at += count
        places = {}
        for slot, s in enumerate(self.running):
            places.setdefault(tuple(s.prompt), slot)
        for s in again:
            source = places[tuple(s.prompt)]
            self.cache.copy(source, len(self.running), len(s.prompt))
            s.beginning = self.running[source].beginning
            self.running.append(s)

    def read(self, first, count, budget):
        """Runs the prompts of count sequences from slot first on, with padding behind them, in passes of at most budget
        tokens."""
        if not self.learner.trunk.cached:
            return
        sequences = self.running[first : first + count]
        device, longest = self.learner.device, max(len(s.prompt) for s in sequences)
        self.cache.empty(first, count)
        tokens = torch.tensor([s.prompt + [0] * (longest - len(s.prompt)) for s in sequences], device=device)
        width = max(1, budget // count)
        for start in range(0, longest, width):
            part = tokens[:, start : start + width]
            end = start + part.shape[1]
            positions = torch.arange(start, end, device=device)
            mask = torch.arange(end, device=device)[None] <= positions[:, None]
            self.cache.at(first, count, start, end)
            hidden = self.extend(part, positions[None].expand(count, -1), mask[None, None].expand(count, 1, -1, -1))
            for row, s in enumerate(sequences):
                if start < len(s.prompt) <= end:
                    s.beginning = hidden[row, len(s.prompt) - 1 - start]

    # One token of each sequence.

    def hidden(self):
        """The states that the next tokens are chosen from, [n, D], in the order of running. Those that just joined are last."""
        if not self.learner.trunk.cached:
            return self.anew()
        old = [s for s in self.running if s.count]
        out = []
        if old:
            at = [s.position() for s in old]
            width = max(at) + 1
            self.cache.reserve(len(self.running), width)
            positions = torch.tensor(at, device=self.learner.device)
            self.cache.among(positions, width)
            mask = torch.arange(width, device=self.learner.device)[None] <= positions[:, None]
            tokens = torch.tensor([[s.last] for s in old], device=self.learner.device)
            out.append(self.extend(tokens, positions[:, None], mask[:, None, None])[:, 0])
        new = [s.beginning for s in self.running[len(old) :]]
        return torch.cat(out + ([torch.stack(new)] if new else []))

    def anew(self):
        """The same states where nothing can be kept: all tokens of a sequence are read again."""
        out = []
        for s in self.running:
            tokens = torch.tensor([s.prompt + s.sampled], device=self.learner.device)
            with self.mixed():
                out.append(self.learner.trunk.hidden(tokens, False)[0, -1])
        return torch.stack(out)

    def mixed(self):
        held = self.learner
        if held.dtype != torch.float32 and not held.adapted:
            return torch.autocast(held.device.type, held.dtype)
        return contextlib.nullcontext()

    def extend(self, tokens, positions, mask):
        held = self.learner
        with self.mixed():
            return held.trunk.extend(tokens, positions, mask, self.cache)

    def choose(self, hidden, masks):
        held, sampled = self.learner, []
        scale = torch.tensor([s.scale for s in self.running], device=held.device)
        of, bits = masks or ({}, torch.empty((0, 0), dtype=torch.uint8, device=held.device))
        mask = torch.tensor([of.get(s.id, -1) for s in self.running], device=held.device)
        for part, z in held.trunk.choosing(hidden, scale, bits, mask, held.dtype):
            sampled += draw(z, self.running[part])
        for s, (token, _, _) in zip(self.running, sampled):
            s.accept(token)
        return [(s.id, *what) for s, what in zip(self.running, sampled)]


def draw(z, sequences):
    """A token, its log-probability and whether it was the only one, of scaled logits [n, V] for each sequence."""
    rows = [row for row, s in enumerate(sequences) if s.nucleus]
    if rows:
        p = torch.tensor([s.top_p for s in sequences if s.nucleus], dtype=torch.float64, device=z.device)
        z[rows] = most_likely(z[rows], p)
    log = torch.log_softmax(z, -1)
    noisy = z
    drawn = [row for row, s in enumerate(sequences) if s.temperature > 0 and s.given is None]
    if drawn:
        states = noise.states([sequences[r].seed for r in drawn], [sequences[r].first + sequences[r].count for r in drawn], z.device)
        noisy = z.clone()
        noisy[drawn] += noise.gumbel(states, z.shape[1])
    tokens = noisy.argmax(-1)
    for row, s in enumerate(sequences):
        if s.given is not None:
            tokens[row] = s.given[s.count]
    only = (z > float("-inf")).sum(-1) == 1
    logprobs = log.gather(-1, tokens[:, None])[:, 0]
    return list(zip(tokens.tolist(), logprobs.tolist(), only.tolist()))


def most_likely(z, p):
    """Leaves, in each row of z, the fewest likeliest tokens that together have the probability p, as model.Nucleus does."""
    chances, order = torch.softmax(z, -1).sort(dim=-1, descending=True, stable=True)
    before = torch.nn.functional.pad(chances.double().cumsum(-1)[:, :-1], (1, 0))  # what likelier tokens have together
    return z.masked_fill(torch.empty_like(order, dtype=torch.bool).scatter(-1, order, before >= p[:, None]), float("-inf"))
