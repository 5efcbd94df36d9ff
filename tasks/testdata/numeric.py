"""Writes what Math-Verify says of pairs of a gold number and a result.

The verdicts are those of verify(parse(gold), parse(result)) of Math-Verify 0.9
(pip install math-verify==0.9.0). The pairs have the kinds of numbers that both read:
others, such as sums, U+2212 as a minus sign, 9{,}500 without dollars, or 50% for 0.5, are
read by one of them alone.

    python numeric.py > numeric.jsonl
"""

import json
import random
from fractions import Fraction

from math_verify import parse, verify

rng = random.Random(1)


def separated(n):
    return f"{n:,}"


def decimal(value):
    """decimal is the exact decimal of a fraction whose denominator divides a power of ten."""
    text = f"{value.numerator * 10**6 // value.denominator:07d}"
    return (text[:-6] + "." + text[-6:]).rstrip("0").rstrip(".")


def integers(value):
    n = value.numerator
    yield from [str(n), separated(n), f"${separated(n)}", f"{separated(n)}.00", f"\\boxed{{{n}}}", f"$\\boxed{{{separated(n)}}}$", f"**{n}**", f"${n}$"]
    yield from [f"\\({n}\\)", f"\\[{n}\\]", f"\\boxed{{{n}\\text{{ clips}}}}", f"\\boxed{{\\${n}}}", f"#### {n}", f"{n} clips", f"#### {separated(n)}", f"{n}.", f"**Answer:** {n}"]
    yield from [f"The answer is {n}.", f"She had 12 and then 30, so in the end {separated(n)}.", f"x = {n}", f"It costs ${n} per day", f"€{n}", f"{n} %", f"${n}^\\circ$", f"${n}\\text{{ cm}}^2$"]
    yield f"${separated(n).replace(',', '{,}')}$"


def decimals(value):
    text = decimal(value)
    yield from [text, f"${text}", f"\\boxed{{{text}}}", f"**{text}**", f"${text}$", f"The answer is {text}.", f"{text} kg", f"#### {text}", f"{text}0"]
    if text.startswith("0."):
        yield text[1:]


def ratios(value):
    a, b = value.numerator, value.denominator
    yield from [f"{a}/{b}", f"$\\frac{{{a}}}{{{b}}}$", f"\\boxed{{\\dfrac{{{a}}}{{{b}}}}}", f"#### {2 * a}/{2 * b}", f"${a}/{b}$", f"The answer is {a}/{b}.", f"$\\tfrac{{{3 * a}}}{{{3 * b}}}$"]
    if a > b > 1:
        yield f"${a // b}\\frac{{{a % b}}}{{{b}}}$"


def negative(text):
    return f"$-{text[1:]}" if text.startswith("$") and text.endswith("$") and len(text) > 2 else "-" + text


def pairs():
    for _ in range(170):
        n = rng.choice([rng.randrange(1, 100), rng.randrange(100, 10**6), rng.randrange(10**6, 10**9), 2**53 + rng.randrange(100)])
        value = Fraction(n)
        other = Fraction(n + rng.choice([0, 0, 0, 1, -1, 10, n])) or Fraction(7)
        yield value, rng.choice(list(integers(other)))
    for _ in range(120):
        value = Fraction(rng.randrange(1, 10**rng.randrange(2, 6)), rng.choice([2, 4, 5, 8, 10, 20, 100, 1000]))
        other = value + rng.choice([0, 0, 0, Fraction(1, 100), Fraction(1, 1000), 1])
        yield value, rng.choice(list(decimals(other)))
    for _ in range(120):
        value = Fraction(rng.randrange(1, 60), rng.choice([2, 4, 5, 8, 10, 20]))
        other = value + rng.choice([0, 0, 0, Fraction(1, 2), Fraction(1, 5), 1])
        yield value, rng.choice(list(ratios(other)))
    for _ in range(30):
        a, e = 10 * rng.randrange(1, 10) + 5, rng.randrange(2, 9)  # Math-Verify computes it in binary
        value = Fraction(a * 10**e, 10)
        yield value, f"${a // 10}.{a % 10} \\times 10^{{{e + rng.choice([0, 0, 1])}}}$"


for value, result in pairs():
    gold = decimal(value) if rng.random() < 0.7 or value.denominator == 1 else f"{value.numerator}/{value.denominator}"
    if (result[0].isdigit() or result[0] == result[-1] == "$") and "boxed" not in result and rng.random() < 0.2:
        gold, result = "-" + gold, negative(result)
    right = verify(parse(gold), parse(result))
    print(json.dumps({"gold": gold, "result": result, "right": bool(right)}))
