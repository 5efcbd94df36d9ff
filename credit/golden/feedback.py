"""Writes ../testdata/feedback.json: the losses of text that a person wrote and of pairs of
replies of which a person chose one, with their derivatives.

    python feedback.py

Like losses.py, from which it takes the rows and the penalties, it needs nothing but
Python, computes in fifty decimal digits and checks each derivative by a central
difference. The loss of a pair is eq. 7 of arXiv:2305.18290, written as there: the
logarithm of a logistic function of differences of log-ratios.
"""

import json
import pathlib
import random
from decimal import Decimal

from losses import KLS, STEP, TOLERANCE, Objective, draw, calls


def supervised(rng):
    for kl in KLS[:-1]:
        for bonus in (0, 0.02):
            o = Objective("cross_entropy", kl=kl, kl_weight=0.3 if kl else 0, bonus=bonus)
            yield o.case(f"supervised; {kl}; {bonus}", draw(rng, calls([4, 1, 3], gap=2)))


def loss(beta, pair):
    chosen, rejected, reference_chosen, reference_rejected = pair
    ratio = (chosen - reference_chosen) - (rejected - reference_rejected)
    return -(1 / (1 + (-beta * ratio).exp())).ln()


def preference(name, beta, pair):
    beta, pair = Decimal(repr(beta)), [Decimal(repr(x)) for x in pair]
    m = beta * ((pair[0] - pair[2]) - (pair[1] - pair[3]))
    derivative = -beta * (1 - 1 / (1 + (-m).exp()))
    for at, sign in ((0, 1), (1, -1)):
        sides = []
        for h in (STEP, -STEP):
            x = list(pair)
            x[at] += h
            sides.append(loss(beta, x))
        difference = (sides[0] - sides[1]) / (2 * STEP)
        assert abs(difference - sign * derivative) <= TOLERANCE * (1 + abs(derivative)), (name, difference, derivative)
    return {
        "name": name, "beta": float(beta), "pair": [float(x) for x in pair],
        "loss": float(loss(beta, pair)), "margin": float(m), "derivative": float(derivative),
    }


def preferences(rng):
    for beta in (0.01, 0.1, 0.5, 2.0, 10.0):
        for spread in (0.1, 3, 20):
            reference = [round(-rng.uniform(1, 90), 4) for _ in range(2)]
            current = [round(min(x + rng.gauss(0, spread), -0.001), 4) for x in reference]
            yield preference(f"beta {beta}, spread {spread}", beta, current + reference)
        yield preference(f"beta {beta}, at the reference", beta, [-12.5, -40.25, -12.5, -40.25])


def main():
    rng = random.Random(20261128)
    parts = {"supervised": list(supervised(rng)), "preferences": list(preferences(rng))}
    text = ",\n".join('"%s": [\n%s\n]' % (k, ",\n".join(json.dumps(c) for c in v)) for k, v in parts.items())
    path = pathlib.Path(__file__).resolve().parent.parent / "testdata" / "feedback.json"
    path.write_text("{%s}\n" % text)


if __name__ == "__main__":
    main()
