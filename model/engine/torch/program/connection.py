"""Frames over the socket to the engine.

A frame is the length of its header (4 bytes, little-endian), the header (JSON), and the bytes of the arrays that the
header lists under "arrays", one after the other, little-endian; their types are called as in NumPy. A request has a verb, a generation and a sequence
number, which its reply repeats. A frame that says "progress" shows that a request is being worked on.
"""

import json
import math
import os
import queue
import shutil
import socket
import struct
import threading
import time
import traceback

WIDTHS = {"f4": 4, "i4": 4, "u1": 1}  # of the numbers of a type, in bytes


class Refused(Exception):
    """A request that can't be carried out and changed nothing."""


class Connection:
    def __init__(self, descriptor, own):
        self.socket = socket.socket(fileno=descriptor)
        self.own = own
        self.sending = threading.Lock()  # a tick may come from a thread of the backward pass
        self.request = {}
        self.ticked = time.monotonic()
        self.requests = queue.Queue()
        threading.Thread(target=self.receive, daemon=True).start()

    def receive(self):
        """Reads requests, and ends the program with the socket, also in the middle of a computation."""
        try:
            while True:
                (length,) = struct.unpack("<I", self.read(4))
                header = json.loads(self.read(length))
                arrays = {}
                for a in header.get("arrays") or []:
                    arrays[a["name"]] = (a["type"], a["shape"], self.read(math.prod(a["shape"]) * WIDTHS[a["type"]]))
                self.requests.put((header, arrays))
        finally:
            shutil.rmtree(self.own, ignore_errors=True)
            os._exit(0)

    def read(self, count):
        data = bytearray(count)
        view = memoryview(data)
        while len(view):
            n = self.socket.recv_into(view)
            if n == 0:
                raise EOFError
            view = view[n:]
        return data

    def send(self, header, arrays=()):
        """Sends a frame. Its arrays are pairs of a name and a numpy array."""
        parts = []
        header = {**header, "arrays": []}
        for name, a in arrays:
            header["arrays"].append({"name": name, "type": a.dtype.str[1:], "shape": list(a.shape)})
            parts.append(a.tobytes())
        text = json.dumps(header).encode()
        with self.sending:
            self.socket.sendall(b"".join([struct.pack("<I", len(text)), text, *parts]))

    def tick(self):
        """Says, at most twice a second, that the request is being worked on."""
        now = time.monotonic()
        if now - self.ticked >= 0.5:
            self.ticked = now
            self.send({**self.request, "progress": True})

    def serve(self, state):
        """Answers one request after the other."""
        while True:
            header, arrays = self.requests.get()
            self.request = {"generation": header["generation"], "sequence": header["sequence"]}
            try:
                result, made = state.answer(header["verb"], header.get("handle", 0), header.get("body") or {}, arrays)
                reply = {"result": result}
            except Refused as e:
                reply, made = {"error": str(e), "kind": "refused"}, ()
            except Exception as e:
                traceback.print_exc()
                kind = "memory" if type(e).__name__ == "OutOfMemoryError" else "fault"
                reply, made = {"error": f"{type(e).__name__}: {e}", "kind": kind}, ()
            self.send({**self.request, **reply}, made)
