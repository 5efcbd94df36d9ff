#!/usr/bin/env python3
"""Stands in for Python: runs the engine's program, notes when updates begin and end, and kills it, and then the worker,
in the middle of a step, and kills it in the middle of replies.

WATCHED_PYTHON is the Python that does the work, WATCHED_NOTES what the names of three files begin with: .updates gets a
line for each update, the seconds since 1970 at its beginning and its end; .passes a byte for each backward pass; .replies
a byte for each token that is sampled of several replies at once. KILLED_PROGRAM and KILLED_WORKER say in which pass,
counted over all starts, the program and its parent are killed, and KILLED_REPLIES at which token the program is; without
them nothing is.
"""

import os
import runpy
import signal
import sys
import time

python, notes = os.environ["WATCHED_PYTHON"], os.environ["WATCHED_NOTES"]
if os.environ.get("WATCHED_INSIDE") != "1":
    os.environ["WATCHED_INSIDE"] = "1"
    os.execv(python, [python, "-u", __file__, *(a for a in sys.argv[1:] if a != "-u")])

sys.argv = sys.argv[1:]
sys.path.insert(0, sys.argv[0])
import decoding  # of the program
import learner

begin, backward, step = learner.Learner.begin, learner.Learner.backward, learner.Learner.step
choose = decoding.Decoder.choose


def append(kind, what):
    """Adds to a file and gives its length."""
    with open(f"{notes}.{kind}", "ab") as f:
        f.write(what)
        return f.tell()


def kill_at(name, count, pid):
    if count == int(os.environ.get(name, "0")):
        os.kill(pid, signal.SIGKILL)


def begun(self):
    self.begun = time.time()
    begin(self)


def counted(self, arrays):
    backward(self, arrays)
    passes = append("passes", b".")
    kill_at("KILLED_PROGRAM", passes, os.getpid())
    kill_at("KILLED_WORKER", passes, os.getppid())


def stepped(self, o):
    step(self, o)
    append("updates", f"{self.begun} {time.time()}\n".encode())


def chosen(self, *arguments):
    sampled = choose(self, *arguments)
    if len(sampled) > 1:
        kill_at("KILLED_REPLIES", append("replies", b"."), os.getpid())
    return sampled


learner.Learner.begin, learner.Learner.backward, learner.Learner.step = begun, counted, stepped
decoding.Decoder.choose = chosen
runpy.run_path(sys.argv[0], run_name="__main__")
