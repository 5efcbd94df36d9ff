"""Writes what the evaluations of HotpotQA and MuSiQue say of pairs of answers and a result.

HotpotQA's scores are those of f1_score and exact_match_score in hotpot_evaluate_v1.py of
https://github.com/hotpotqa/hotpot (pip install ujson), MuSiQue's those of AnswerMetric in
https://github.com/StonyBrookNLP/musique. Pairs without words are left out: both call an
empty result right for the answer "A". MuSiQue's has no rule for yes and no.

    python qa.py HOTPOT MUSIQUE > qa.jsonl
"""

import json
import random
import sys

sys.path[:0] = sys.argv[1:3]
from hotpot_evaluate_v1 import exact_match_score, f1_score, normalize_answer
from metrics.answer import AnswerMetric

rng = random.Random(1)
ANSWERS = [
    "yes", "no", "Yes.", "No", "noanswer", "The Beatles", "a theory of the mind", "G. Stanley Hall", "Granville Stanley Hall", "1,080", "May 1901", "the U.S.",
    "to be or not to be", "Ann Arbor, Michigan", "AC/DC", "rock 'n' roll", "São Paulo", "ΟΔΟΣ", "οδος", "İstanbul", "an A–B test", "O'Neil", "A", "the", "3.5 million", "$29.00",
    "Hall of Fame", "No Doubt", "yes and no", "naïve", "x_y", "C++", "東京", "one  two\tthree", "Straße", "1²", "the the", "10th century", "No. 10", "Answer: Paris",
]


def results(answer):
    words = answer.split()
    yield from [answer, answer.upper(), answer.lower(), "the " + answer, answer + ".", f"  {answer}\n", "", "yes", "no", "yes no", f"yes, {answer}", f"not {answer}", "I don't know"]
    yield from [" ".join(words[::-1]), " ".join(words[:1]), " ".join(words[1:]), f"{answer} {answer}", answer.replace(" ", "-"), answer.replace(" ", "\u00a0"), f'"{answer}"', rng.choice(ANSWERS)]


for answer in ANSWERS:
    for result in results(answer):
        aliases = [answer] + rng.sample(ANSWERS, rng.choice([0, 0, 1, 2]))
        if not all(normalize_answer(one) for one in aliases):
            continue
        hotpot = max(f1_score(result, one)[0] for one in aliases)
        em = max(exact_match_score(result, one) for one in aliases)
        metric = AnswerMetric()
        metric(result, aliases)
        musique_em, musique = metric.get_metric()
        line = {"answers": aliases, "result": result, "f1": hotpot, "exact": int(em)}
        if not any(normalize_answer(one) in ("yes", "no", "noanswer") for one in [result, *aliases]):
            line["musique"] = {"f1": musique, "exact": musique_em}
        print(json.dumps(line))
