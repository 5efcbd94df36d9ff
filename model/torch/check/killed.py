#!/usr/bin/env python3
"""Stands in for Python: runs the engine's program and kills it, and then the worker, in the middle of a step.

KILLED_PYTHON is the Python that does the work, KILLED_COUNT a file that gets a byte for each backward pass,
KILLED_PROGRAM and KILLED_WORKER say in which pass, counted over all starts, the program and its parent are killed.
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
import learner  # of the program

backward = learner.Learner.backward


def counted(self, arrays):
    backward(self, arrays)
    with open(os.environ["KILLED_COUNT"], "ab") as f:
        f.write(b".")
        passes = f.tell()
    if passes == int(os.environ["KILLED_PROGRAM"]):
        os.kill(os.getpid(), signal.SIGKILL)
    if passes == int(os.environ["KILLED_WORKER"]):
        os.kill(os.getppid(), signal.SIGKILL)


learner.Learner.backward = counted
runpy.run_path(sys.argv[0], run_name="__main__")
