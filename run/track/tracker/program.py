"""Logs the entries of a run with trackio or wandb: package run/track/tracker starts it and speaks with it.

    python -c PROGRAM

Each line of standard input is a request, and each line of standard output a reply, as JSON:

    {"tracker": "trackio", "project": …, "name": …, "id": …, "config": {…}}   the first request
        {"row": {"step": …, "names": […]}}   for each entry that the tracker has, if it can list them
        {"ready": {"rows": true, "logged": null}}   "logged" is how many entries a tracker has that can't list them
    {"log": {"sequence": …, "step": …, "values": {…}}}   an entry; no reply
    {"commit": …}   the number of entries since the start
        {"committed": …}   once the tracker has them

{"error": …} or {"missing": PACKAGE} is a reply to any request, and the last one. The program ends with its input. It
notes in the journal, which is file 3, how many entries the tracker has, also if whoever started it was killed.
"""

import inspect
import json
import os
import signal
import sys
import time

JOURNAL = 3

# How long trackio may take to write what was logged, in seconds.
WRITE_LIMIT = 60


class Trackio:
    """A run in trackio's own database, from which the entries are read back, or on a server, from which they are not."""

    def __init__(self, opening):
        import trackio
        from trackio.sqlite_storage import SQLiteStorage

        self.trackio, self.storage, self.project = trackio, SQLiteStorage, opening["project"]
        self.local = not any(os.environ.get(name) for name in ("TRACKIO_SPACE_ID", "TRACKIO_SERVER_URL"))
        if self.local:
            found = SQLiteStorage.get_run_config(self.project, opening["name"]) or {}
            mine = opening["config"]["fulgurite_run"]
            if found.get("fulgurite_run", mine) != mine:
                raise RuntimeError(f"project {self.project!r} of trackio has another run {opening['name']!r}: choose another project")
        known = inspect.signature(trackio.init).parameters
        quiet = {name: False for name in ("embed", "auto_log_gpu", "auto_log_cpu") if name in known}
        self.run = trackio.init(project=self.project, name=opening["name"], config=opening["config"], resume="allow", **quiet)
        self.stored = self.count() if self.local else 0
        self.logged = None

    def count(self):
        return self.storage.get_log_count(self.project, self.run.name, run_id=self.run.id)

    def rows(self):
        if not self.local:
            return None
        logs = self.storage.get_logs(self.project, self.run.name, run_id=self.run.id)
        return [(row["step"], [name for name in row if name not in ("step", "timestamp")]) for row in logs]

    def log(self, entry):
        self.trackio.log(entry["values"], step=entry["step"])

    def commit(self, total):
        """Waits for the thread that writes: it reports no errors."""
        limit = time.monotonic() + WRITE_LIMIT
        while self.local and self.count() < self.stored + total:
            if time.monotonic() > limit:
                raise RuntimeError(f"trackio has not written what was logged within {WRITE_LIMIT} seconds: see its warnings")
            time.sleep(0.05)

    def finish(self):
        self.trackio.finish()


class Wandb:
    """A run of Weights & Biases. Its own step numbers the entries, so that it ignores an entry that it has."""

    def __init__(self, opening):
        import wandb

        settings = wandb.Settings(console="off", x_disable_stats=True)
        self.run = wandb.init(project=opening["project"], name=opening["name"], id=opening["id"], config=opening["config"], resume="allow", settings=settings)
        self.run.define_metric("step")
        self.run.define_metric("*", step_metric="step")
        self.logged = None if self.run.offline else self.run.starting_step

    def rows(self):
        return None

    def log(self, entry):
        self.run.log({"step": entry["step"], **entry["values"]}, step=entry["sequence"])

    def commit(self, total):
        """Does nothing: another process has what was logged, and outlives this one."""

    def finish(self):
        self.run.finish()


def serve(requests, reply):
    opening = next(requests)
    tracker = {"trackio": Trackio, "wandb": Wandb}[opening["tracker"]](opening)
    rows = tracker.rows()
    for step, names in rows or []:
        reply(row={"step": step, "names": names})
    reply(ready={"rows": rows is not None, "logged": tracker.logged})
    total = noted = numbered = 0

    def note():
        nonlocal noted
        tracker.commit(total)
        os.write(JOURNAL, (json.dumps({"committed": numbered}) + "\n").encode())
        noted = total

    for request in requests:
        if "log" in request:
            tracker.log(request["log"])
            total, numbered = total + 1, request["log"]["sequence"] + 1
        else:
            note()
            reply(committed=request["commit"])
    if noted < total:
        note()
    tracker.finish()


def main():
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # the end of the input ends this program
    replies = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)  # trackers print to standard output

    def reply(**message):
        replies.write(json.dumps(message) + "\n")
        replies.flush()

    try:
        serve(map(json.loads, sys.stdin), reply)
    except ModuleNotFoundError as e:
        reply(missing=e.name)
        sys.exit(1)
    except Exception as e:
        reply(error=f"{type(e).__name__}: {e}")
        raise


main()
