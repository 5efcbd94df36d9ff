"""Writes ../testdata/presets.json: the gradient that each algorithm gives each token.

    python presets.py

Every algorithm is written down from its paper once more, in fifty decimal digits:
rewards to advantages, and those to the derivative of the loss by each token's
log-probability, with the bounds and the divisor that belong to it. Attempts are of
one reply each. On the policy that sampled, and for attempts whose lengths differ,
this is what tells a mean over an attempt's own tokens from any other divisor.
"""

import json
import pathlib
import random
from decimal import Decimal

import losses

ONE, EPSILON, WHITE = Decimal(1), Decimal("1e-6"), Decimal("1e-8")
LENGTH = 192  # what "constant" divides by: 8 calls of 24 tokens


def mean(xs):
    return sum(xs) / len(xs)


def deviation(xs):
    return (sum((x - mean(xs)) ** 2 for x in xs) / (len(xs) - 1)).sqrt()


def grouped(change):
    """An advantage for every attempt, from the rewards of its group alone."""

    def advantages(b, name="final"):
        out = []
        for g in b.groups:
            rewards = [b.reward(i, name) for i in g]
            out += [change(rewards, k) for k in range(len(rewards))]
        return out

    return advantages


grpo = grouped(lambda r, k: 0 * ONE if len(set(r)) == 1 else (r[k] - mean(r)) / (deviation(r) + EPSILON))
centred = grouped(lambda r, k: r[k] - mean(r))
left_out = grouped(lambda r, k: r[k] - mean(r[:k] + r[k + 1 :]))
by_mean = grouped(lambda r, k: 0 * ONE if mean(r) == 0 else (r[k] - mean(r)) / mean(r))
alone = grouped(lambda r, k: r[k])


def tokens(b, advantages):
    """Every token has the advantage of its attempt."""
    return [[a] * n for a, n in zip(advantages, b.lengths)]


def whitened(by_token):
    """Over all tokens of the batch, as verl does."""
    flat = [a for row in by_token for a in row]
    middle = mean(flat)
    width = (sum((a - middle) ** 2 for a in flat) / (len(flat) - 1) + WHITE).sqrt()
    return [[(a - middle) / width for a in row] for row in by_token]


def gdpo(b):
    parts = {name: grpo(b, name) for name in b.weights}
    return whitened(tokens(b, [sum(w * parts[name][i] for name, w in b.weights.items()) for i in range(len(b.lengths))]))


def ppo(b, gamma=ONE, lam=Decimal("0.95")):
    """δ_t + γλ·δ_(t+1) + …, the sum written out; the reward is the last token's."""
    out = []
    for i, n in enumerate(b.lengths):
        values = b.values[i] + [0 * ONE]
        delta = [(b.reward(i) if t == n - 1 else 0) + gamma * values[t + 1] - values[t] for t in range(n)]
        out.append([sum((gamma * lam) ** (u - t) * delta[u] for u in range(t, n)) for t in range(n)])
    return whitened(out)


def turn_ppo(b):
    """One turn: its advantage is what the reward exceeds the critic's first value by."""
    return whitened(tokens(b, [b.reward(i) - b.values[i][0] for i in range(len(b.lengths))]))


CLIP = dict(surrogate="ppo_clip", low=0.2, high=0.2)
ALGORITHMS = {
    "grpo": (lambda b: tokens(b, grpo(b)), CLIP, "sequence_mean"),
    "dr_grpo": (lambda b: tokens(b, centred(b)), CLIP, "constant"),
    "dapo": (lambda b: tokens(b, grpo(b)), dict(CLIP, high=0.28), "token_mean"),
    "gspo": (lambda b: tokens(b, grpo(b)), dict(surrogate="gspo", low=3e-4, high=4e-4), "sequence_mean"),
    "cispo": (lambda b: tokens(b, grpo(b)), dict(surrogate="cispo", low=1, high=4), "token_mean"),
    "rloo": (lambda b: tokens(b, left_out(b)), CLIP, "constant"),
    "maxrl": (lambda b: tokens(b, by_mean(b)), CLIP, "token_mean"),
    "gdpo": (gdpo, CLIP, "token_mean"),
    "reinforce++": (lambda b: whitened(tokens(b, alone(b))), CLIP, "token_mean"),
    "reinforce++_baseline": (lambda b: whitened(tokens(b, centred(b))), CLIP, "token_mean"),
    "ppo": (ppo, CLIP, "token_mean"),
    "turn_ppo": (turn_ppo, CLIP, "token_mean"),
    "gigpo": (lambda b: tokens(b, grpo(b)), CLIP, "token_mean"),  # no state is met twice
}


class Batch:
    """Attempts of one reply, in groups; ratios are those of its tokens."""

    def __init__(self, rng, groups, ratios, weights):
        self.groups, self.lengths, self.rewards, self.values, self.ratios = [], [], [], [], []
        self.weights = {name: Decimal(repr(w)) for name, w in weights.items()}
        for samples in groups:
            self.groups.append(range(len(self.lengths), len(self.lengths) + len(samples)))
            for rewards, n in samples:
                self.rewards.append(dict(zip(weights, map(lambda x: Decimal(repr(x)), rewards))))
                self.lengths.append(n)
                self.values.append([Decimal(rng.randint(-8, 8)) / 8 for _ in range(n)])
                self.ratios.append([rng.choice(ratios) for _ in range(n)])

    def reward(self, i, name="final"):
        return self.rewards[i][name]

    def row(self, i, advantages):
        """Attempt i as losses.py has it: log-probabilities of −1 where it was sampled."""
        n, out = self.lengths[i], None
        out = losses.Row([0] * n, **{name: [-1.0] * n for name in losses.Row.FIELDS})
        out.advantage = advantages[i]
        out.current = [Decimal(float(x)) for x in self.current(i)]
        return out

    def current(self, i):
        return [-ONE + Decimal(repr(r)).ln() for r in self.ratios[i]]

    def gradient(self, name):
        credit, objective, aggregation = ALGORITHMS[name]
        advantages, objective, out = credit(self), losses.Objective(**objective), []
        for i, n in enumerate(self.lengths):
            row = self.row(i, advantages)
            by = {"token_mean": sum(self.lengths), "sequence_mean": n * len(self.lengths), "constant": LENGTH * len(self.lengths)}[aggregation]
            row.weight = [ONE / by] * n
            out.append([float(x) for x in objective.gradient(row)])
        return out

    def json(self):
        return {
            "weights": {name: float(w) for name, w in self.weights.items()},
            "groups": [len(g) for g in self.groups],
            "rewards": [{name: float(x) for name, x in r.items()} for r in self.rewards],
            "values": [[float(x) for x in v] for v in self.values],
            "current": [[float(x) for x in self.current(i)] for i in range(len(self.lengths))],
        }


def batches():
    rng, both = random.Random(3), {"final": 1.0, "style": 0.25}
    pair = [[((1.0, 0.5), 2), ((0.0, 0.75), 20)]]
    yield "2 and 20 tokens, on policy", Batch(rng, pair, [1.0], both)
    mixed = [
        [((1.0, 0.5), 2), ((0.0, 0.5), 20), ((0.0, 1.0), 7)],
        [((0.25, 1.5), 1), ((0.5, 0.0), 5)],
        [((1.0, 0.5), 3), ((1.0, 0.5), 4)],
    ]
    yield "groups, on policy", Batch(rng, mixed, [1.0], both)
    yield "groups, off policy", Batch(rng, mixed, [0.5, 0.79, 0.81, 0.9997, 1.0, 1.0003, 1.19, 1.21, 1.27, 1.29, 4.5, 6.0], both)


def main():
    out = []
    for name, b in batches():
        out.append({"name": name, **b.json(), "gradient": {a: b.gradient(a) for a in ALGORITHMS}})
    path = pathlib.Path(__file__).resolve().parent.parent / "testdata" / "presets.json"
    path.write_text('{"length": %d, "batches": [\n%s\n]}\n' % (LENGTH, ",\n".join(json.dumps(b) for b in out)))


if __name__ == "__main__":
    main()
