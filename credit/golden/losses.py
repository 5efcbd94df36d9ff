"""Writes ../testdata/losses.json: what losses and their derivatives have to be.

    python losses.py

It needs nothing but Python. Every number is computed from the formulas in fifty
decimal digits and rounded once, so that any machine prints the same file; none of
it follows the code that is tested. Derivatives come from rules of their own, and
each is checked here against a central difference of the value, in which whatever a
formula holds constant stays as it is.
"""

import json
import pathlib
import random
from decimal import Decimal, getcontext

getcontext().prec = 50
STEP, TOLERANCE = Decimal("1e-16"), Decimal("1e-25")


def clip(r, low, high):
    return min(max(r, 1 - low), 1 + high)


def k3(d):
    return d.exp() - 1 - d


def mean(xs):
    return sum(xs) / len(xs)


class Row:
    """Tokens of a row; trained are the positions of those that are."""

    FIELDS = ("current", "sampled", "proximal", "reference", "entropy", "advantage", "weight")

    def __init__(self, call, **fields):
        self.call = call
        for name in self.FIELDS:
            setattr(self, name, [Decimal(repr(x)) for x in fields[name]])
        self.trained = [i for i, w in enumerate(self.weight) if w]
        self.calls = {}
        for i in self.trained:
            self.calls.setdefault(call[i], []).append(i)

    def json(self):
        return {"call": self.call, **{name: [float(x) for x in getattr(self, name)] for name in self.FIELDS}}


class Objective:
    def __init__(self, surrogate, low=0, high=0, dual=0, correction="none", floor=0, cap=0, kl="", kl_weight=0, bonus=0):
        self.surrogate, self.correction, self.kl = surrogate, correction, kl
        numbers = dict(low=low, high=high, dual=dual, floor=floor, cap=cap, kl_weight=kl_weight, bonus=bonus)
        self.plain = dict(surrogate=surrogate, correction=correction, kl=kl, **numbers)
        for name, x in numbers.items():
            setattr(self, name, Decimal(repr(x)))

    def old(self, row):
        return row.sampled if self.correction == "none" else row.proximal

    def importance(self, row):
        """By trained token: weight, whether it was truncated, whether it is left out."""
        out = {}
        for tokens in row.calls.values():
            logs = [row.proximal[i] - row.sampled[i] for i in tokens]
            for i, log in zip(tokens, logs):
                out[i] = self.weight(log.exp(), sum(logs).exp(), mean(logs).exp(), mean([k3(x) for x in logs]))
        return out

    def weight(self, token, product, geometric, divergence):
        one = Decimal(1)
        if self.correction == "decoupled":
            return min(token, self.cap), token > self.cap, False
        if self.correction == "sequence":
            return min(product, self.cap), product > self.cap, False
        if self.correction == "mis":
            keep = self.floor <= token <= self.cap
            return (token if keep else 0 * one), False, not keep
        if self.correction == "geometric":
            keep = self.floor <= geometric <= self.cap
            return one * keep, False, not keep
        if self.correction == "k3":
            keep = divergence <= self.cap
            return one * keep, False, not keep
        return one, False, False

    def ratio(self, row, i, at):
        """r of token i at log-probabilities at; of GSPO that of its call."""
        old = self.old(row)
        if self.surrogate != "gspo":
            return (at[i] - old[i]).exp()
        return mean([at[j] - old[j] for j in row.calls[row.call[i]]]).exp()

    def term(self, row, i, x, still):
        """The surrogate of token i at x, where the formula's constants see still."""
        a, old = row.advantage[i], self.old(row)
        if self.surrogate == "cross_entropy":
            return -x[i]
        if self.surrogate == "cispo":
            return -clip(self.ratio(row, i, still), self.low, self.high) * a * x[i]
        if self.surrogate == "gspo":
            r = self.ratio(row, i, still) * (x[i] - still[i]).exp()
        else:
            r = self.ratio(row, i, x)
        if self.surrogate == "importance_sampling":
            return -r * a
        if self.surrogate == "dppo_tv":
            moved = still[i].exp() - old[i].exp()
            stop = (a > 0 and moved > self.high) or (a < 0 and moved < -self.low)
            return -r * a * (not stop)
        gain = min(r * a, clip(r, self.low, self.high) * a)
        if self.dual and a < 0:
            gain = max(gain, self.dual * a)
        return -gain

    def slope(self, row, i):
        """The derivative of term by x[i] at the current log-probabilities."""
        a, r = row.advantage[i], self.ratio(row, i, row.current)
        if self.surrogate == "cross_entropy":
            return Decimal(-1)
        if self.surrogate == "cispo":
            return -clip(r, self.low, self.high) * a
        if self.surrogate == "dppo_tv":
            moved = row.current[i].exp() - self.old(row)[i].exp()
            return 0 * r if (a > 0 and moved > self.high) or (a < 0 and moved < -self.low) else -r * a
        if self.surrogate in ("ppo_clip", "gspo"):
            if (a > 0 and r > 1 + self.high) or (a < 0 and r < 1 - self.low):
                return 0 * r
            if self.dual and a < 0 and r > self.dual:
                return 0 * r
        return -r * a

    def penalty(self, row, i, x):
        d = row.reference[i] - x
        if self.kl == "k1":
            return -d
        if self.kl == "k2":
            return d * d / 2
        if self.kl == "unbiased":
            return (x - row.sampled[i]).exp() * k3(d)
        return k3(d)

    def penalty_slope(self, row, i):
        d = row.reference[i] - row.current[i]
        if self.kl == "k1":
            return Decimal(1)
        if self.kl == "k2":
            return -d
        if self.kl == "unbiased":
            return -d * (row.current[i] - row.sampled[i]).exp()
        return 1 - d.exp()

    def loss(self, row, x, still):
        importance, total = self.importance(row), Decimal(0)
        for i in row.trained:
            w = row.weight[i]
            total += w * importance[i][0] * self.term(row, i, x, still)
            total += w * self.kl_weight * self.penalty(row, i, x[i])
            total -= w * self.bonus * row.entropy[i]
        return total

    def gradient(self, row):
        importance, out = self.importance(row), [Decimal(0)] * len(row.call)
        for i in row.trained:
            w = row.weight[i]
            out[i] = w * importance[i][0] * self.slope(row, i) + w * self.kl_weight * self.penalty_slope(row, i)
        return out

    def check(self, row, gradient):
        for i, g in enumerate(gradient):
            sides = []
            for h in (STEP, -STEP):
                x = list(row.current)
                x[i] += h
                sides.append(self.loss(row, x, row.current))
            difference = (sides[0] - sides[1]) / (2 * STEP)
            assert abs(difference - g) <= TOLERANCE * (1 + abs(g)), (self.plain, i, difference, g)

    def case(self, name, row):
        gradient = self.gradient(row)
        self.check(row, gradient)
        importance = self.importance(row)
        return {
            "name": name,
            "objective": self.plain,
            "tokens": row.json(),
            "loss": float(self.loss(row, row.current, row.current)),
            "gradient": [float(g) for g in gradient],
            "entropy_gradient": [float(-w * self.bonus) for w in row.weight],
            "ratio": float(sum(self.ratio(row, i, row.current) for i in row.trained)),
            "reference": float(sum(self.penalty(row, i, row.current[i]) for i in row.trained) * (self.kl_weight != 0)),
            "importance": float(sum(importance[i][0] for i in row.trained)) * (self.correction != "none"),
            "capped": sum(importance[i][1] for i in row.trained),
            "rejected": sum(importance[i][2] for i in row.trained),
        }


SURROGATES = {
    "ppo_clip": dict(low=0.2, high=0.28),
    "ppo_clip, dual": dict(low=0.2, high=0.28, dual=1.5),
    "gspo": dict(low=0.05, high=0.08),
    "cispo": dict(low=0.3, high=0.4),
    "cispo, no lower bound": dict(low=1, high=4),
    "dppo_tv": dict(low=0.1, high=0.15),
    "importance_sampling": {},
    "cross_entropy": {},
}
CORRECTIONS = {
    "none": {},
    "decoupled": dict(cap=1.2),
    "mis": dict(floor=0.75, cap=1.3),
    "sequence": dict(cap=1.4),
    "geometric": dict(floor=0.9, cap=1.1),
    "k3": dict(cap=0.03),
}
KLS = ["", "k1", "k2", "k3", "unbiased"]


def calls(lengths, gap=1):
    """Ordinals of tokens: calls of these lengths, each after gap tokens of context."""
    out = []
    for n, length in enumerate(lengths):
        out += [-1] * gap + [3 * n] * length
    return out


def draw(rng, call, spread=0.3, uniform=False):
    """A row whose policies are about spread nats apart."""
    near = lambda xs: [round(min(x + rng.gauss(0, spread), -0.001), 4) for x in xs]
    n = len(call)
    sampled = [round(-rng.expovariate(1) - 0.05, 4) for _ in range(n)]
    proximal = near(sampled)
    advantage = [round(rng.gauss(0, 1), 3) for _ in range(n)]
    if uniform:
        advantage = [advantage[c] for c in call]
    return Row(
        call,
        sampled=sampled,
        proximal=proximal,
        current=near(proximal),
        reference=near(sampled),
        entropy=[round(rng.uniform(0, 3), 3) for _ in range(n)],
        advantage=advantage,
        weight=[0.0 if c < 0 else rng.choice([0.125, 0.25, 0.0625, 0.1]) for c in call],
    )


def rows(rng):
    """Edge cases by name."""
    yield "one token", draw(rng, [0])
    yield "nothing trained", draw(rng, [-1, -1, -1])
    yield "one call", draw(rng, [4] * 6, uniform=True)
    yield "calls that alternate", draw(rng, [1, 0, -1, 1, 0, 0, 1])
    yield "far apart", draw(rng, calls([3, 2]), spread=4)
    equal = draw(rng, calls([2, 3]))
    for name in ("proximal", "current", "reference"):
        setattr(equal, name, list(equal.sampled))
    yield "one policy", equal
    idle = draw(rng, calls([3, 1]))
    idle.advantage = [Decimal(0)] * len(idle.call)
    yield "no advantage", idle


def objectives():
    """Every surrogate with every correction; penalties and bonuses take turns."""
    n = 0
    for name, bounds in SURROGATES.items():
        for correction, limits in CORRECTIONS.items():
            kl = KLS[n % len(KLS)]
            parts = dict(kl=kl, kl_weight=0.3 if kl else 0, bonus=[0, 0.02][n % 2])
            yield f"{name}; {correction}", Objective(name.split(",")[0], correction=correction, **bounds, **limits, **parts)
            n += 1


def aggregations():
    lengths, length = [2, 0, 6, 1], 16
    total, trajectories = sum(lengths), sum(n > 0 for n in lengths)
    return {
        "trajectories": lengths,
        "length": length,
        "token_mean": [1 / total if n else 0 for n in lengths],
        "sequence_mean": [1 / (n * trajectories) if n else 0 for n in lengths],
        "constant": [1 / (length * trajectories) if n else 0 for n in lengths],
    }


def main():
    rng = random.Random(20261121)
    cases = []
    for name, objective in objectives():
        cases.append(objective.case(name, draw(rng, calls([4, 1, 3], gap=2))))
        edge, row = list(rows(rng))[len(cases) % 7]
        cases.append(objective.case(f"{name}; {edge}", row))
    for kl in KLS[1:]:
        objective = Objective("importance_sampling", kl=kl, kl_weight=1)
        cases.extend(objective.case(f"{kl}; {edge}", row) for edge, row in rows(rng))
    lines = ",\n".join(json.dumps(c) for c in cases)
    path = pathlib.Path(__file__).resolve().parent.parent / "testdata" / "losses.json"
    path.write_text('{"aggregations": %s,\n"cases": [\n%s\n]}\n' % (json.dumps(aggregations()), lines))


if __name__ == "__main__":
    main()
