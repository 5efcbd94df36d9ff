#!/usr/bin/env python3
"""Stands in for Python: runs the engine's program and kills it, and then the worker, in the middle of a step, and kills
it in the middle of replies.

KILLED_PYTHON is the Python that does the work, KILLED_COUNT a file that gets a byte for each backward pass,
KILLED_PROGRAM and KILLED_WORKER say in which pass, counted over all starts, the program and its parent are killed.
KILLED_COUNT.replies gets a byte for each token that is sampled of several replies at once, and KILLED_REPLIES says at
which of them the program is killed.
"""

import os
import runpy
import signal
import sys

python = os.environ["KILLED_PYTHON"]
if os.environ.get("KILLED_INSIDE") != "1":
    os.environ["KILLED_INSIDE"] = "1"
    os.execv(python, [python, "-u", __file__, *(a for a in sys.argv[1:] if a != "-u")])

sys.argv = sys.argv[1:]
sys.path.insert(0, sys.argv[0])
import decoding  # of the program
import learner

backward = learner.Learner.backward


def count(path):
    with open(path, "ab") as f:
        f.write(b".")
        return f.tell()


choose = decoding.Decoder.choose


def chosen(self, *arguments):
    sampled = choose(self, *arguments)
    if len(sampled) > 1 and count(os.environ["KILLED_COUNT"] + ".replies") == int(os.environ["KILLED_REPLIES"]):
        os.kill(os.getpid(), signal.SIGKILL)
    return sampled


def counted(self, arrays):
    backward(self, arrays)
    passes = count(os.environ["KILLED_COUNT"])
    if passes == int(os.environ["KILLED_PROGRAM"]):
        os.kill(os.getpid(), signal.SIGKILL)
    if passes == int(os.environ["KILLED_WORKER"]):
        os.kill(os.getppid(), signal.SIGKILL)


learner.Learner.backward = counted
decoding.Decoder.choose = chosen
runpy.run_path(sys.argv[0], run_name="__main__")
