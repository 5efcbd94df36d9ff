"""Computes golden.json: what experiment must return, by another program than experiment.

It leaves out each unit and averages the rest anew, in exact fractions, where Go keeps
sums. Run it in this folder: python3 golden.py
"""

import hashlib
import json
import math
from fractions import Fraction


def outcomes(count, users, stars, better):
    """Judgments by a linear congruential generator; user 3 has both versions."""
    state, found = 12345, []
    for _ in range(count):
        draws = []
        for _ in range(3):
            state = (state * 6364136223846793005 + 1442695040888963407) % 2**64
            draws.append(state >> 33)
        user = min(draws[0] % users, draws[1] % users)  # low numbers are more active
        candidate = user % 2 == 0 if user != 3 else draws[1] % 3 == 0
        value = min(stars, draws[2] % (stars + 1) + (draws[0] // users % 3 == 0 and candidate and better))
        found.append((f"u{user}", candidate, Fraction(value, stars)))
    return found


def mean(values):
    return sum(values, Fraction(0)) / len(values)


def compare(found, share, level, conversations):
    def difference(leave_out=None):
        one = [v for u, c, v in found if c and u != leave_out]
        zero = [v for u, c, v in found if not c and u != leave_out]
        return mean(one) - mean(zero)

    d = difference()
    v = sum((difference(u) - d) ** 2 for u in sorted({u for u, _, _ in found}))
    n1 = sum(c for _, c, _ in found)
    n0 = len(found) - n1
    n = Fraction(n1 * n0, n1 + n0)
    q = float(n * n * v)
    limit = 0.4 * conversations * share * (1 - share)
    heights = []
    for part, narrowest in ((0.8, limit), (0.2, limit / 10)):
        slope = math.sqrt(math.log(2 / (level * part)) / (2 * narrowest))
        heights.append(math.log(2 / (level * part)) / (2 * slope) + slope * q)
    radius = min(heights) / float(n)

    def arm(candidate):
        counts = {}
        for u, c, _ in found:
            if c == candidate:
                counts[u] = counts.get(u, 0) + 1
        total = sum(counts.values())
        return {
            "units": len(counts),
            "conversations": total,
            "mean": float(mean([v for _, c, v in found if c == candidate])),
            "effective_units": total**2 / sum(k * k for k in counts.values()),
        }

    return {
        "difference": float(d),
        "std_error": math.sqrt(v),
        "low": max(-1.0, float(d) - radius),
        "high": min(1.0, float(d) + radius),
        "candidate": arm(True),
        "control": arm(False),
    }


def place(run, candidate, unit):
    text = b"experiment" + len(run.encode()).to_bytes(8, "big") + run.encode()
    text += candidate.to_bytes(8, "big") + unit.encode()
    return (int.from_bytes(hashlib.sha256(text).digest()[:8], "big") >> 11) / 2**53


cases = []
for name, count, users, stars, better, share, level, conversations in (
    ("thumbs", 400, 120, 1, False, 0.5, 0.05, 2000),
    ("thumbs, few conversations allowed", 400, 120, 1, True, 0.5, 0.05, 300),
    ("five stars", 700, 150, 4, True, 0.5, 0.01, 1000),
    ("another share", 300, 200, 1, False, 0.2, 0.1, 5000),
):
    found = outcomes(count, users, stars, better)
    cases.append({
        "name": name,
        "share": share,
        "level": level,
        "max_conversations": conversations,
        "outcomes": [[u, int(c), float(v)] for u, c, v in found],
        "result": compare(found, share, level, conversations),
    })
places = [[r, c, u, place(r, c, u)] for r, c, u in (("demo", 7, "ann"), ("demo", 8, "ann"), ("demo", 7, "bob"), ("demo2", 7, "ann"), ("", 0, ""), ("dé", 1, "x" * 100))]
with open("golden.json", "w", encoding="utf-8") as f:
    json.dump({"cases": cases, "places": places}, f, separators=(",", ":"))
    f.write("\n")
for c in cases:
    print(c["name"], c["result"])
