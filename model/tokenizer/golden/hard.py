"""Strings that tokenizers disagree about, drawn from a fixed seed."""

import random

FIXED = [
    "", " ", "  ", "a", " a", "a ", "\n", "\r\n", "\n\n", " \n", "\t", "\u00a0", "\u3000x", "\u2028", "\u0085",
    "don't", "DON'T", "we'LL go", "'\u017f", "x'\u017fy", "it's 12345 6", "３４５", "½ ² Ⅷ",
    "e\u0301", "é", "e\u0323\u0302", "\u1100\u1161\u11a8", "각", "\u212b", "A\u030a", "ﬁ",
    "a\u1add\u0323\u0301", "e\u1ac0\u0301", "\u1add\u1aeb\u0323", "\U00010efd\u0323",
    "👩‍👩‍👧‍👦", "🇩🇪🇫🇷", "👍🏽", "नमस्ते", "สวัสดี", "مرحبا بالعالم", "עברית", "日本語のテキスト", "中文字符，测试。", "한국어 테스트",
    "\u200b\u200d", "\ufeffbom", "\u0000\u0001\u007f", "\ue000", "\U00010940\U00018d80 \u0295x", "\U0010ffff", "\ufffd",
    "def f(x):\n    return x**2  # ok\n", '{"a": [1, 2.5e-3, null]}', "http://a.b/c?d=e&f=%20", "...!!!???", "#$%^&*()_+",
    "    indented\n\t\ttabs\n\n\n  end   ", "\r\r\n\n\r", "a\u0300\u0301\u0302",
    "<|im_start|>", "<|im_end|> x", "<think>\nhm\n</think>", "<tool_call>\n{}\n</tool_call>",
    "<|im_start|>user\nhi<|im_end|>\n", "x<|endoftext|>y", "<|begin_of_text|>a<|eot_id|>", "<|im_start", "<<|im_end|>>",
    "foo <mask> bar", "word<mask>word", "  <sep>  x", "<sep> <mask> <sep>", "<pad><pad>", "word<one>", "a <one> b", "<one>", "x<one>y",
    "_<one>", "é<one>", "\u200d<one>", "cafe\u0301 caf\u00e9", "<n\u0331>", "<\u1e49> ",
    "a" * 300, "ab" * 200, " " * 200 + "x", "\n" * 99, "1" * 50, "x " * 100, "ß" * 60, "語" * 80,
]

POOLS = [
    "abcdefghijklmnopqrstuvwxyz", "ABCDEFGHIJKLMNOPQRSTUVWXYZ", "0123456789", " \t\n\r\u00a0\u2003",
    "'\".,;:!?-_/\\()[]{}<>|@#$%^&*+=~`", "éèüñçøÅßſŉ", "日本語中文字符测试한국어", "абвгдЖЩ", "αβγδΩ",
    "\u0300\u0301\u0308\u20dd\u0327\u0323", "😀🎉👍🏽❤️🇩🇪\u200d", "\u0000\u0001\u001b\u007f\u0085", "٠١٢०१２３", "ªºⅧ½²①",
    "กขคงจ", "अआइक्षि", "אבגד", "ابتث", "\u1100\u1161\u11a8\u1112", "𝒜𝓑𝟘",
    "\U00010940\U00018d80\u088f\U000323b0\u0295", "﷽ﬁﬀⅸ", "\ufb01\u2126\u212b\u1e9b\u0323", "\u1add\u0897\u1ac0\u1e08f",
]

WORDS = (
    "the quick brown fox jumps over the lazy dog and then she's said that we'll be in 1999 or 2024 "
    "http json return function user assistant tool call"
).split()

TOKENS = [
    "<|im_start|>", "<|im_end|>", "<think>", "</think>", "<tool_call>", "<|eot_id|>", "<|endoftext|>",
    "<mask>", "<sep>", "<pad>", "<one>", "<\u1e49>", "<|python_tag|>",
]

ENDS = [" ", " ", "  ", "\n", ", ", ". ", "\n\n", "'s ", "", ".\n", ":\t"]


def character(r):
    while True:
        c = r.randrange(0x110000 if r.random() < 0.3 else 0x3000)
        if not 0xD800 <= c < 0xE000:
            return chr(c)


# Of vocabularies with byte fallback, and what looks like their tokens.
MORE_TOKENS = TOKENS + [
    "<s>", "</s>", "<unk>", "[INST]", "[/INST]", "<0x41>", "<0x0A>", "\u2581", "\u2581\u2581", " \u2581", "<s", "[tool]", "<\u00e9>",
]

MORE_FIXED = [
    "\u2581", " \u2581 ", "\u2581a", "a\u2581 b", "<0x41>", "<0xFF>", "<s>", "<s>a", "a<s> b", " <s>", "<s> <s>", "<s></s>a</s>",
    "[INST] a [/INST] b </s>", "<unk>", "a <unk>b", "[tool] x", "x [tool]", "x[tool]y", "caf\u00e9 <\u00e9> <e\u0301>",
    "\x04", "a\x04b", "\x06\x13\x14\x16\x1d", "th\x04e", "th\x16e the", " \x04 ", "\U000c0000", "\U00100000", "\u0000",
    "1\x0423", "the\x1dquick", "\x04<|im_end|>\x04", "\U0001f9ff\U0001f9ffx", "a\n\n b", "x\ty", "  two  spaces  ",
]


def draw(r, TOKENS=TOKENS):
    kind = r.random()
    if kind < 0.25:
        return "".join(r.choice(r.choice(POOLS)) for _ in range(r.randint(1, 24)))
    if kind < 0.5:
        pools = r.sample(POOLS, 3)
        return "".join(r.choice(r.choice(pools)) for _ in range(r.randint(1, 40)))
    if kind < 0.75:
        return "".join(r.choice(WORDS) + r.choice(ENDS) for _ in range(r.randint(1, 16)))
    if kind < 0.85:
        return "".join(r.choice(TOKENS + WORDS + [" ", "\n", "x", "  "]) for _ in range(r.randint(1, 10)))
    return "".join(character(r) + r.choice(["", "", " ", "a"]) for _ in range(r.randint(1, 16)))


def strings(n):
    r = random.Random(7)
    return FIXED + [draw(r) for _ in range(n - len(FIXED))]


def more(n):
    """Others, in which there are tokens of more kinds and bytes that few vocabularies have."""
    r = random.Random(11)
    all = FIXED + MORE_FIXED
    while len(all) < n:
        s = draw(r, MORE_TOKENS)
        if r.random() < 0.2:
            at = r.randint(0, len(s))
            s = s[:at] + r.choice(["\x04", "\x06", "\x1d", "\U000c0001", "\u2581", " ", "  "]) + s[at:]
        all.append(s)
    return all
