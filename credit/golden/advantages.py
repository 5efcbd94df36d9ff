"""Writes ../testdata/advantages.json: what the credit of hard batches has to be.

    pip install numpy && python advantages.py

It shares no code with the package: everything is computed from the definitions of
the papers, on dictionaries and numpy arrays in float64. Numbers are drawn from a
fixed seed and printed with twelve digits, so that the file repeats byte for byte.
"""

import json
import pathlib
import random

import numpy as np

EPSILON = 1e-6  # beside a deviation
WHITE = 1e-8  # beside a variance
FLOOR = 1e-6  # of the largest number: a mean below it is none to divide by


def deviation(x):
    """Unbiased, over all numbers of x; a lone number has none."""
    x = np.asarray(x, dtype=np.float64)
    return float(x.std(ddof=1)) if x.size > 1 else 0.0


def equal(x):
    return len(set(x)) < 2


def baseline(plan, i, group, batch):
    """What sample i of a group is compared with."""
    if plan["mean"] == "group":
        others = [x for j, x in enumerate(group) if j != i]
        return float(np.mean(others if plan["loo"] and others else group))
    if plan["mean"] == "running":
        return plan["baseline"]
    return float(np.mean(batch)) if plan["mean"] == "batch" else 0.0


def divisor(plan, group, batch, beside=(0.0, 0.0), ahead=()):
    kind = plan["std"]
    if kind == "group":
        return deviation(group) + beside[0] + EPSILON
    if kind == "batch":
        return deviation(batch) + beside[1] + EPSILON
    if kind == "mean":
        of = batch if plan["mean"] == "batch" else group
        mean, largest = float(np.mean(of)), max(abs(x) for x in [*of, *ahead])
        return mean if mean > 0 and mean >= FLOOR * largest else np.inf
    return 1.0


def normalize(plan, groups, beside=None):
    batch = [x for g in groups for x in g]
    out = []
    for n, g in enumerate(groups):
        if plan["mean"] == "group" and equal(g):
            out.append([0.0] * len(g))
            continue
        by = divisor(plan, g, batch, beside[n] if beside else (0.0, 0.0))
        out.append([(x - baseline(plan, i, g, batch)) / by for i, x in enumerate(g)])
    return out


class Paths:
    """The trajectories of a batch as one agent, or all of them, are trained in it."""

    def __init__(self, plan, groups, agent=None):
        self.plan, self.groups = plan, groups
        self.trained = {}
        for g, samples in enumerate(groups):
            for i, t in enumerate(samples):
                self.trained[g, i] = [
                    k for k, c in enumerate(t["calls"]) if not c["skip"] and agent in (None, c["agent"])
                ]
        self.counted = [
            [(g, i) for i, t in enumerate(samples) if not t["calls"] or self.trained[g, i]]
            for g, samples in enumerate(groups)
        ]

    def call(self, at, k):
        return self.groups[at[0]][at[1]]["calls"][k]

    def reward(self, at, name=None):
        rewards = self.groups[at[0]][at[1]]["rewards"]
        if name:
            return rewards[name]
        return sum(w * rewards[n] for n, w in self.plan["rewards"].items())

    def penalties(self, at, k):
        """What each token of a call loses for leaving the reference."""
        c, kl = self.call(at, k), self.plan["kl"]
        if c.get("masked"):
            return [0.0] * c["tokens"]
        d = np.array(c["reference"]) - np.array(c["sampled"])
        return list(-kl["weight"] * {"k1": -d, "k2": d**2 / 2, "k3": np.exp(d) - 1 - d}[kl["estimator"]])

    def income(self, at, k):
        return self.call(at, k)["reward"] + sum(self.penalties(at, k))

    def earned(self, at):
        return sum(self.income(at, k) for k in self.trained[at])

    def running(self):
        """0.95^n·b + Σ 0.05·0.95^(n−1−i)·R_i, the sum written out."""
        rewards = [self.reward(at) + self.earned(at) for at, ks in self.trained.items() if ks]
        n = len(rewards)
        return 0.95**n * self.plan["baseline"] + sum(0.05 * 0.95 ** (n - 1 - i) * r for i, r in enumerate(rewards))

    def compared(self, number, beside=None):
        normal = normalize(self.plan, [[number(at) for at in c] for c in self.counted], beside)
        out = {at: 0.0 for at in self.trained}
        for c, x in zip(self.counted, normal):
            out.update(zip(c, x))
        return out

    def finals(self, beside=None):
        if not self.plan["separate"]:
            return self.compared(self.reward, beside)
        out = {at: 0.0 for at in self.trained}
        for name, w in self.plan["rewards"].items():
            for at, a in self.compared(lambda at: self.reward(at, name)).items():
                out[at] += w * a
        return out

    def outcomes(self):
        if not self.plan["separate"]:
            return self.compared(lambda at: self.reward(at) + self.earned(at))
        finals, earned = self.finals(), self.compared(self.earned)
        return {at: finals[at] + earned[at] for at in finals}

    def ahead(self, at, j, final=0.0):
        """The return from trained call j on, the sum written out."""
        ks, gamma = self.trained[at], self.plan["discount"]
        rest = sum(gamma ** (m - j) * self.income(at, ks[m]) for m in range(j, len(ks)))
        return rest + gamma ** (len(ks) - 1 - j) * final

    # The assignments return {(group, sample, call): advantage}.

    def identical(self):
        a = self.outcomes()
        return {(*at, k): a[at] for at, ks in self.trained.items() for k in ks}

    def last_call(self):
        a = self.outcomes()
        return {(*at, k): a[at] if k == ks[-1] else 0.0 for at, ks in self.trained.items() for k in ks}

    def discounted(self):
        members = [[at for at in c if self.trained[at]] for c in self.counted]
        if not any(self.income(at, k) for at, ks in self.trained.items() for k in ks):
            a = self.outcomes()
            gamma = self.plan["discount"]
            return {
                (*at, k): a[at] * gamma ** (len(ks) - 1 - j) for at, ks in self.trained.items() for j, k in enumerate(ks)
            }
        everywhere = [at for m in members for at in m]

        def at_position(ats, j):
            return {at: self.ahead(at, j) for at in ats if j < len(self.trained[at])}

        def scatter(ats):
            rows = []
            for at in ats:
                own = [
                    self.ahead(at, j) - np.mean(list(at_position(ats, j).values())) for j in range(len(self.trained[at]))
                ]
                rows.append(np.mean(np.square(own)))
            return float(np.sqrt(np.sum(rows) / (len(rows) - 1))) if len(rows) > 1 else 0.0

        beside = [(scatter(m), scatter(everywhere)) for m in members]
        final = self.finals(beside)
        base = self.earned if self.plan["separate"] else self.reward
        values = [[base(at) for at in c] for c in self.counted]
        batch = [x for v in values for x in v]
        out = {}
        for g, m in enumerate(members):
            by = 1.0
            if self.plan["separate"] and self.plan["std"] in ("group", "batch"):
                by = beside[g][0 if self.plan["std"] == "group" else 1] + EPSILON
            elif values[g]:
                ahead = [self.ahead(at, j) for at in m for j in range(len(self.trained[at]))]
                by = divisor(self.plan, values[g], batch, beside[g], ahead)
            for at in m:
                n = len(self.trained[at])
                for j, k in enumerate(self.trained[at]):
                    here = at_position(m, j)
                    order = list(here)
                    own = self.ahead(at, j) - baseline(
                        self.plan, order.index(at), list(here.values()), list(at_position(everywhere, j).values())
                    )
                    out[(*at, k)] = self.plan["discount"] ** (n - 1 - j) * final[at] + own / by
        return out

    def pooled(self, key, number):
        """Numbers of calls that share a key, against the mean of their like."""
        plan = dict(self.plan, mean="group", std={"batch": "group"}.get(self.plan["std"], self.plan["std"]))
        pools = {}
        for c in self.counted:
            for at in c:
                for j, k in enumerate(self.trained[at]):
                    pools.setdefault(key(at, k), []).append(((*at, k), number(at, j, k)))
        out = {}
        for name, pool in pools.items():
            numbers = normalize(plan, [[x for _, x in pool]])[0]
            out.update((at, 0.0 if name is None else a) for (at, _), a in zip(pool, numbers))
        return out

    def gigpo(self):
        steps = self.pooled(
            lambda at, k: (at[0], self.call(at, k)["state"]) if self.call(at, k)["state"] else None,
            lambda at, j, k: self.ahead(at, j, self.reward(at)),
        )
        return {at: a + self.plan["step_weight"] * steps[at] for at, a in self.identical().items()}

    def judge(self):
        scores = self.pooled(lambda at, k: at[0], lambda at, j, k: self.call(at, k)["judged"])
        return {at: a + scores[at] for at, a in self.identical().items()}

    def value_difference(self):
        out = {}
        for at, ks in self.trained.items():
            before = [self.call(at, k)["before"] for k in ks] + [self.reward(at)]
            out.update(((*at, k), self.income(at, k) + before[j + 1] - before[j]) for j, k in enumerate(ks))
        return out

    def chain(self, at):
        """Calls with tokens, and what each brought in: calls without give theirs to the one before."""
        ks, rewards = [], []
        for k in self.trained[at]:
            if self.call(at, k)["tokens"]:
                ks.append(k)
                rewards.append(self.income(at, k))
            elif ks:
                rewards[-1] += self.income(at, k)
        if ks:
            rewards[-1] += self.reward(at)
        return ks, rewards

    def gae(self, rewards, values):
        """Σ_l (γλ)^l δ_(t+l), the sum written out."""
        gamma, both = self.plan["discount"], self.plan["discount"] * self.plan["lambda"]
        following = list(values[1:]) + [0.0]
        delta = np.array(rewards) + gamma * np.array(following) - np.array(values)
        return [float(np.sum(both ** np.arange(len(delta) - t) * delta[t:])) for t in range(len(delta))]

    def turn_gae(self):
        out, returns = {}, {}
        for at, ks in self.trained.items():
            out.update(((*at, k), 0.0) for k in ks)
            kept, rewards = self.chain(at)
            values = [self.call(at, k)["values"][0] for k in kept]
            for k, v, a in zip(kept, values, self.gae(rewards, values)):
                out[(*at, k)] = a
                returns[(*at, k)] = [a + v] * self.call(at, k)["tokens"]
        return out, None, returns

    def token_gae(self):
        out, tokens, returns = {}, {}, {}
        for at, ks in self.trained.items():
            out.update(((*at, k), 0.0) for k in ks)
            kept, earned = self.chain(at)
            rewards, values = [], []
            for k, r in zip(kept, earned):
                lost = self.penalties(at, k)  # each the reward of its own token
                rewards += lost[:-1] + [r - sum(lost[:-1])]
                values += self.call(at, k)["values"]
            a = self.gae(rewards, values)
            for k in kept:
                n = self.call(at, k)["tokens"]
                tokens[(*at, k)], a = a[:n], a[n:]
                v, values = values[:n], values[n:]
                returns[(*at, k)] = [x + y for x, y in zip(tokens[(*at, k)], v)]
                out[(*at, k)] = float(np.mean(tokens[(*at, k)]))
        return out, tokens, returns

    def assigned(self):
        if self.plan["tokens"] == "gae":
            return self.token_gae()
        made = getattr(self, self.plan["assignment"])()
        return made if isinstance(made, tuple) else (made, None, None)


def whiten(calls, tokens, size):
    spread = {at: tokens.get(at, []) if tokens is not None else [a] * size(at) for at, a in calls.items()}
    flat = np.array([x for xs in spread.values() for x in xs])
    if equal(list(flat)):
        change = lambda x: 0.0
    else:
        middle, width = flat.mean(), np.sqrt(flat.var(ddof=1) + WHITE)
        change = lambda x: float((x - middle) / width)
    if tokens is None:
        return {at: change(a) for at, a in calls.items()}, None
    tokens = {at: [change(x) for x in xs] for at, xs in tokens.items()}
    return {at: float(np.mean(tokens[at])) if tokens.get(at) else 0.0 for at in calls}, tokens


def advantages(plan, groups):
    everybody = Paths({**plan, "baseline": plan["baselines"].get("all", 0.0)}, groups)
    agents = {c["agent"] for g in groups for t in g for c in t["calls"] if not c["skip"]}
    own = lambda a: Paths({**plan, "baseline": plan["baselines"].get(f"agent {a}", 0.0)}, groups, a)
    parts = [own(a) for a in sorted(agents)] if plan["per_agent"] else [everybody]
    calls, tokens, returns = {}, None, None
    for c, t, r in (p.assigned() for p in parts):
        calls.update(c)
        tokens = tokens if t is None else {**(tokens or {}), **t}
        returns = returns if r is None else {**(returns or {}), **r}
    # Masked calls count in all that comes before, and have no credit themselves.
    masked = {at for at in calls if everybody.call(at[:2], at[2]).get("masked")}
    calls, tokens, returns = ({at: x for at, x in of.items() if at not in masked} if of is not None else None for of in (calls, tokens, returns))
    if plan["whiten"]:
        calls, tokens = whiten(calls, tokens, lambda at: everybody.call(at[:2], at[2])["tokens"])
    whole = everybody.outcomes()

    def by_call(of):
        return [[[of(g, i, k, c) for k, c in enumerate(t["calls"])] for i, t in enumerate(s)] for g, s in enumerate(groups)]

    def by_token(of):
        return None if of is None else by_call(lambda g, i, k, c: of.get((g, i, k), [0.0] * c["tokens"]))

    baselines = None
    if plan["mean"] == "running":
        baselines = {**plan["baselines"], "all": everybody.running()}
        if plan["per_agent"]:
            baselines.update((f"agent {a}", p.running()) for a, p in zip(sorted(agents), parts))

    return {
        "baselines": baselines,
        "trajectory": [[whole[g, i] for i in range(len(s))] for g, s in enumerate(groups)],
        "call": by_call(lambda g, i, k, c: calls.get((g, i, k), 0.0)),
        "token": by_token(tokens),
        "returns": by_token(returns),
    }


def draw(r, sizes, most, earn, others):
    """A batch; rewards and states are few, so that equal ones meet."""

    def call(k):
        tokens = r.choice([0, 1, 1, 2, 3])
        agent = r.choice(["solver", "critic"]) if others else "solver"
        return {
            "agent": agent,
            "state": r.choice(["", f"s{k}", f"s{k}", "start"]),
            "reward": r.choice([0, 0, 0.1, -0.2, 0.25]) if earn else 0,
            "tokens": tokens,
            "skip": others and r.random() < 0.25,
            "values": [round(r.uniform(-1, 1), 3) for _ in range(tokens)],
            "before": round(r.uniform(0, 1), 3),
            "judged": r.choice([0, 0.25, 0.5, 1]),
        }

    return [
        [
            {
                "name": f"demo/train-1/{g}/{i}/1",
                "rewards": {"final": r.choice([0, 0, 1, 1, 0.4, -0.5]), "style": round(r.uniform(0, 3), 2)},
                "calls": [call(k) for k in range(r.randint(0 if others else 1, most))],
            }
            for i in range(n)
        ]
        for g, n in enumerate(sizes)
    ]


def edges():
    """Groups of one, of equal rewards, without success, empty; all skipped; no tokens."""

    def call(agent="solver", state="s", skip=False, tokens=2, reward=0):
        values = [0.25, -0.5, 0.125][:tokens]
        return {"agent": agent, "state": state, "reward": reward, "tokens": tokens, "skip": skip, "values": values, "before": 0.5, "judged": 1}

    def sample(final, *calls):
        return {"name": "edge", "rewards": {"final": final, "style": 1}, "calls": list(calls)}

    return [
        [sample(1, call())],
        [sample(0.3, call(), call(tokens=1)), sample(0.3, call()), sample(0.3, call())],
        [sample(0, call()), sample(0, call(state="t")), sample(0)],
        [],
        [sample(1, call(skip=True)), sample(1, call(), call(skip=True), call()), sample(0, call(), call(tokens=0))],
        [sample(1, call(reward=0.5)), sample(0.5, call(reward=0.5), call(reward=0.5)), sample(0)],
        [sample(-1, call()), sample(0.5, call())],
        [sample(1, call(skip=True))],
    ]


def policies(batches):
    """Log-probabilities of the tokens, under what sampled and under the reference."""
    r = random.Random(11)
    for groups in batches.values():
        for c in (c for g in groups for t in g for c in t["calls"]):
            c["sampled"] = [round(-r.expovariate(1) - 0.01, 3) for _ in range(c["tokens"])]
            c["reference"] = [round(min(x + r.gauss(0, 0.5), -0.001), 3) for x in c["sampled"]]


def masked(groups):
    """A copy of a batch in which some replies were cut off, all those of one attempt."""
    r = random.Random(17)
    out = json.loads(json.dumps(groups))
    for c in (c for g in out for t in g for c in t["calls"]):
        c["masked"] = r.random() < 0.4
    for c in out[0][1]["calls"]:
        c["masked"] = True
    return out


def cancelling():
    """Rewards of both signs: means that rounding, or next to nothing, leaves."""

    def sample(final, *earned):
        calls = [
            {"agent": "solver", "state": f"c{k}", "reward": e, "tokens": 1, "skip": False, "values": [0.5], "before": 0.5, "judged": 1}
            for k, e in enumerate(earned)
        ]
        return {"name": "cancelling", "rewards": {"final": final, "style": 1}, "calls": calls}

    return [
        [sample(0.1, 0), sample(0.2, 0), sample(-0.3, 0)],
        [sample(1, 0), sample(-1, 0), sample(1e-7, 0)],
        [sample(0, 1, 0.5), sample(3e-7, 0, 0.25), sample(0, 0)],
    ]


def plans():
    base = {
        "mean": "none", "std": "none", "loo": False, "assignment": "identical", "tokens": "uniform", "discount": 0.0, "lambda": 0.0,
        "step_weight": 0.0, "per_agent": False, "whiten": False, "rewards": {"final": 1}, "separate": False,
        "kl": {"estimator": "k1", "weight": 0}, "baselines": {},
    }  # fmt: skip
    two = {"final": 1, "style": -0.5}
    levels = {
        "grpo": {"mean": "group", "std": "group"},
        "dr_grpo": {"mean": "group"},
        "rloo": {"mean": "group", "loo": True},
        "maxrl": {"mean": "group", "std": "mean"},
        "reinforce++": {"discount": 0.9, "assignment": "discounted", "whiten": True},
        "reinforce++_baseline": {"mean": "group", "whiten": True},
        "gdpo": {"mean": "group", "std": "group", "separate": True, "rewards": two, "whiten": True},
        "batch": {"mean": "batch", "std": "batch"},
        "batch_mean": {"mean": "batch", "std": "mean"},
        "two_rewards": {"mean": "group", "std": "batch", "rewards": two},
    }
    for name, level in levels.items():
        yield name, {**base, **level}
    ways = {
        "last_call": {"assignment": "last_call"},
        "discounted": {"assignment": "discounted", "discount": 0.8},
        "gigpo": {"assignment": "gigpo", "discount": 0.95, "step_weight": 0.7},
        "judge": {"assignment": "judge"},
    }
    for way in ways:
        for name in ["grpo", "dr_grpo", "rloo", "maxrl", "batch", "gdpo"]:
            yield f"{way}_{name}", {**base, **levels[name], **ways[way]}
        yield f"{way}_per_agent", {**base, **levels["grpo"], **ways[way], "per_agent": True}
        yield f"{way}_separate_maxrl", {**base, **levels["maxrl"], **ways[way], "separate": True, "rewards": two}
    estimates = {
        "turn_gae": {"assignment": "turn_gae", "discount": 0.99, "lambda": 0.9},
        "value_difference": {"assignment": "value_difference"},
        "gae": {"tokens": "gae", "discount": 0.97, "lambda": 0.95},
    }
    for name, way in estimates.items():
        yield name, {**base, **way}
        yield f"{name}_whitened", {**base, **way, "whiten": True, "rewards": two}
        yield f"{name}_per_agent", {**base, **way, "per_agent": True}


    running = {"mean": "running", "baselines": {"all": 0.3, "agent solver": 0.4, "agent other": 9.0}}
    yield "running", {**base, **running}
    yield "running_batch", {**base, **running, "std": "batch", "baselines": {}}
    yield "running_per_agent", {**base, **running, "per_agent": True}
    yield "running_last_call_per_agent", {**base, **running, **ways["last_call"], "per_agent": True}
    yield "running_gigpo", {**base, **running, **ways["gigpo"]}
    kls = [{"estimator": k, "weight": w} for k, w in (("k1", 0.05), ("k2", 0.3), ("k3", 0.5))]
    for n, name in enumerate(["grpo", "dr_grpo", "rloo", "reinforce++", "reinforce++_baseline", "batch"]):
        yield f"{name}_kl", {**base, **levels[name], "kl": kls[n % 3]}
    for n, (name, way) in enumerate({**ways, **estimates}.items()):
        level = {} if name in estimates else levels["rloo"]
        yield f"{name}_kl", {**base, **level, **way, "kl": kls[n % 3]}
        yield f"{name}_kl_per_agent", {**base, **level, **way, "kl": kls[(n + 1) % 3], "per_agent": True}


def overlong():
    for tokens, buffer, penalty in [(20480, 4096, 1), (100, 40, 0.5), (10, 10, 2), (10, 0, 1)]:
        for length in [0, 1, tokens - buffer, tokens - buffer + 1, tokens - buffer // 2, tokens - 1, tokens, tokens + 1, 9 * tokens]:
            want = float(np.clip((tokens - buffer - length) / buffer, -1, 0) * penalty) if buffer else -penalty * (length > tokens)
            yield {"tokens": tokens, "buffer": buffer, "penalty": penalty, "length": length, "want": want}


def short(x):
    """Twelve digits, the same on any machine: what ends in a 5 right after them, as
    products of short decimals do, is rounded away from zero whichever side its last
    bit falls on, and what rounding left of a zero is a zero."""
    if isinstance(x, float):
        return float(f"{x * (1 + 3e-14):.12g}") if abs(x) > 1e-11 else 0.0
    if isinstance(x, dict):
        return {k: short(v) for k, v in x.items()}
    return [short(v) for v in x] if isinstance(x, list) else x


def go(plan):
    """The plan under the names of the package's fields."""
    own = {k: plan[k] for k in ["assignment", "tokens", "discount", "lambda", "whiten", "rewards", "separate", "kl", "baselines"]}
    normalization = {"mean": plan["mean"], "std": plan["std"], "leaveOneOut": plan["loo"]}
    return {"normalization": normalization, "stepWeight": plan["step_weight"], "perAgent": plan["per_agent"], **own}


def main():
    r = random.Random(5)
    batches = {
        "plain": draw(r, [4, 4, 3], 3, earn=False, others=False),
        "signals": draw(r, [4, 2, 5], 4, earn=True, others=False),
        "agents": draw(r, [5, 4, 1, 3], 5, earn=True, others=True),
        "edges": edges(),
        "cancelling": cancelling(),
    }
    policies(batches)
    batches["masked"] = masked(batches["agents"])
    cases = [
        {"name": name, "batch": batch, "plan": go(plan), "want": short(advantages(plan, groups))}
        for name, plan in plans()
        for batch, groups in batches.items()
    ]

    def lines(items):
        return ",\n".join(json.dumps(x, separators=(",", ":")) for x in items)

    named = ",\n".join(f"{json.dumps(k)}:{json.dumps(v, separators=(',', ':'))}" for k, v in batches.items())
    text = f'{{"batches":{{\n{named}\n}},"cases":[\n{lines(cases)}\n],"overlong":[\n{lines(map(short, overlong()))}\n]}}\n'
    pathlib.Path(__file__).parent.parent.joinpath("testdata", "advantages.json").write_text(text)


if __name__ == "__main__":
    main()
