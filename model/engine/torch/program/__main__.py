"""The program of Fulgurite's engine torch: package model/engine/torch starts it, speaks with it and ends it.

    python PROGRAM DESCRIPTOR DEVICE THREADS RANK RANKS PRODUCTS

DESCRIPTOR is the number of an open socket, DEVICE "cpu", "cuda" or "auto", THREADS those of the CPU, or 0 for
PyTorch's choice. RANK counts from 0 the processes, RANKS in number, among which models are spread. PRODUCTS is the
type of products, "float32", "bfloat16" or "auto", that of the device. PROGRAM lies in a directory of the engine's, which
is removed when the socket ends.
"""

import os
import signal
import sys

import connection
import versions


def main():
    descriptor, device = int(sys.argv[1]), sys.argv[2]
    threads, rank, count = map(int, sys.argv[3:6])
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # a terminal sends it to the whole group; the engine ends this program
    own = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
    link = connection.Connection(descriptor, own)
    try:
        found = versions.check()
        import computer  # only now: it imports the libraries

        state = computer.Computer(link, device, threads, rank, count, sys.argv[6])
    except versions.Unfit as e:
        link.send({"error": str(e), "kind": "setup"})
        return
    link.send({"result": {"versions": found, **state.describe()}})
    link.serve(state)


main()
