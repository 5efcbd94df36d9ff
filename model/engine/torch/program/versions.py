"""Which versions of Python and its libraries the program works with."""

import importlib.metadata
import re
import sys

# Each library with the first version that will do and the first that is not known to.
RANGES = {
    "torch": ((2, 11), (3,)),
    "transformers": ((5, 17), (6,)),
    "peft": ((0, 18), (1,)),
    "safetensors": ((0, 4), (1,)),
}
PYTHON = (3, 10)
INSTALL = "`fulgurite doctor --install-torch` makes an environment that has all"


class Unfit(Exception):
    """Something about this Python or this machine that a person has to change."""


def check():
    """The version of each library, all within their ranges."""
    if sys.version_info < PYTHON:
        found_version = f"{sys.executable} is Python {text(sys.version_info[:2])}, want {text(PYTHON)} or later"
        raise Unfit(f"{found_version}: name another by FULGURITE_TORCH; {INSTALL}")
    found, wrong = {}, []
    for name, (first, beyond) in RANGES.items():
        try:
            found[name] = importlib.metadata.version(name)
        except importlib.metadata.PackageNotFoundError:
            wrong.append(f"{name} is not installed")
            continue
        if not first <= numbers(found[name]) < beyond:
            wrong.append(f"{name} is {found[name]}, want at least {text(first)} and below {text(beyond)}")
    if wrong:
        wanted = " ".join(f"'{name}>={text(first)},<{text(beyond)}'" for name, (first, beyond) in RANGES.items())
        raise Unfit(f"{'; '.join(wrong)}: {INSTALL}; or, into this Python, {sys.executable} -m pip install {wanted}")
    return found


def numbers(version):
    """The leading numbers of a version: 2.13.0+cpu is (2, 13, 0)."""
    return tuple(int(n) for n in re.match(r"\d+(?:\.\d+)*", version).group().split("."))


def text(version):
    return ".".join(map(str, version))
