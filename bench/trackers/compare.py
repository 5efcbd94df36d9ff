"""Compares what `fulgurite track` wrote with the record, each number by the tracker's own reader.

    python compare.py STORE RUN [tensorboard DIR | trackio PROJECT | wandb DIR]...

STORE is the SQLite file of the record. TensorBoard's files are read by its EventAccumulator, and
once more through the HTTP server of `tensorboard`, as the browser gets them; trackio's numbers by SQL from its database; wandb's from the files that it keeps offline.
It prints how many numbers are equal, and fails
with the first that is missing, doubled or different.
"""

import glob
import json
import math
import sqlite3
import struct
import subprocess
import sys
import time
import urllib.parse
import urllib.request
from collections import defaultdict


def single(value):
    return struct.unpack("<f", struct.pack("<f", value))[0]


def record(path, run):
    """What the record has: by name, the (step, value) pairs in their order."""
    db = sqlite3.connect(f"file:{path}?mode=ro", uri=True)
    out = defaultdict(list)
    (text,) = db.execute("SELECT metrics FROM versions WHERE run = ? AND policy = 'main' AND number = 0", (run,)).fetchone()
    for name, value in json.loads(text or "{}").items():
        out[name].append((0, value))
    for step, text in db.execute("SELECT step, metrics FROM steps WHERE run = ? AND policy = 'main' ORDER BY step", (run,)):
        metrics = json.loads(text)
        for name, value in metrics.items():
            out[name].append((step, value))
        reward = metrics.get("reward/all_rollouts", metrics.get("reward/mean"))
        if reward is not None:
            out["reward"].append((step, reward))
    rows = "SELECT policy, kind, version, mean, std_error, greedy FROM evaluations WHERE run = ? ORDER BY version"
    for policy, kind, version, mean, error, greedy in db.execute(rows, (run,)):
        name = f"evaluation/{'' if policy == 'main' else policy + '/'}{kind}"
        out[f"{name}/mean"].append((version, mean))
        out[f"{name}/std_error"].append((version, error))
        if greedy is not None:
            out[f"{name}/greedy"].append((version, greedy))
    for policy, version in db.execute("SELECT policy, version FROM promotions WHERE run = ? ORDER BY policy, seq", (run,)):
        out[f"promoted/{'' if policy == 'main' else policy + '/'}version"].append((None, version))
    return out


def compare(where, want, got):
    """Steps of promotions are not compared: the record does not have them."""
    missing, more = want.keys() - got.keys(), got.keys() - want.keys()
    assert not missing and not more, f"{where}: missing {sorted(missing)}, unknown {sorted(more)}"
    count = 0
    for name in sorted(want):
        assert len(want[name]) == len(got[name]), f"{where}: {name} has {len(got[name])} values, the record {len(want[name])}"
        for (step, value), (found, shown) in zip(want[name], got[name]):
            assert step in (None, found) and math.isclose(value, shown, rel_tol=0, abs_tol=0), f"{where}: {name} is {shown} at step {found}, on record {value} at step {step}"
            count += 1
    print(f"{where}: {count} numbers under {len(want)} names are equal")


def tensorboard(folder, run, want):
    from tensorboard.backend.event_processing import event_accumulator

    events = event_accumulator.EventAccumulator(f"{folder}/{run}", size_guidance={"scalars": 0, "tensors": 0})
    events.Reload()
    got = {tag: [(e.step, e.value) for e in events.Scalars(tag)] for tag in events.Tags()["scalars"]}
    compare("TensorBoard", {name: [(step, single(value)) for step, value in all] for name, all in want.items()}, got)
    (spec,) = events.Tensors("spec")
    json.loads(spec.tensor_proto.string_val[0].decode().removeprefix("```json\n").removesuffix("\n```"))
    reasons = len(events.Tensors("promoted/reason")) if "promoted/reason" in events.Tags()["tensors"] else 0
    print(f"TensorBoard: the spec, and {reasons} reasons of promotions")
    served(folder, run, want)


def served(folder, run, want):
    """The numbers as the browser gets them, from the data server, which shows one value a step under each name."""
    port = 16106
    command = [sys.executable, "-m", "tensorboard.main", "--logdir", folder, "--port", str(port), "--samples_per_plugin", "scalars=100000", "--load_fast", "true"]
    server = subprocess.Popen(command, stderr=subprocess.DEVNULL)
    try:

        def get(path):
            with urllib.request.urlopen(f"http://127.0.0.1:{port}/data/plugin/scalars/{path}", timeout=10) as reply:
                return json.load(reply)

        limit = time.monotonic() + 60
        while True:
            try:
                if get("tags").get(run, {}).keys() >= want.keys():
                    break
            except OSError:
                pass
            assert time.monotonic() < limit, "tensorboard does not show the run"
            time.sleep(0.2)
        got = {}
        for name in want:
            points = get("scalars?" + urllib.parse.urlencode({"run": run, "tag": name}))
            got[name] = [(step, value) for _, step, value in points]
    finally:
        server.terminate()
        server.wait()
    last = {}
    for name, all in got.items():
        if name.startswith("promoted/"):  # of several moves at one step the last one is shown
            assert single(want[name][-1][1]) == all[-1][1], f"tensorboard shows {all[-1]} as the last {name}"
        else:
            last[name] = all
    compare("tensorboard in the browser", {name: [(step, single(value)) for step, value in want[name]] for name in last}, last)


def trackio(project, run, want):
    from trackio.sqlite_storage import SQLiteStorage

    db = sqlite3.connect(f"file:{SQLiteStorage.get_project_db_path(project)}?mode=ro", uri=True)
    got = defaultdict(list)
    for step, text in db.execute("SELECT step, metrics FROM metrics WHERE run_name = ? ORDER BY id", (run,)):
        for name, value in json.loads(text).items():
            if not isinstance(value, str):
                got[name].append((step, value))
    compare("trackio", want, got)
    (config,) = db.execute("SELECT config FROM configs WHERE run_name = ?", (run,)).fetchone()
    assert "training" in json.loads(config), "trackio: the spec is missing"


def blocks(path):
    """The records of a file of wandb's, which has the format of LevelDB's logs after a header of 7 bytes."""
    with open(path, "rb") as file:
        data = file.read()
    at, part, size = 7, b"", 32768
    while at + 7 <= len(data):
        if size - at % size < 7:
            at += size - at % size
            continue
        length, kind = int.from_bytes(data[at + 4 : at + 6], "little"), data[at + 6]
        part += data[at + 7 : at + 7 + length]
        at += 7 + length
        if kind in (1, 4):  # whole, or the last part
            yield part
            part = b""


def wandb(folder, run, want):
    from wandb.proto import wandb_internal_pb2

    got, numbers = defaultdict(list), []
    for path in sorted(glob.glob(f"{folder}/offline-run-*{run}-*/*.wandb")):
        for data in blocks(path):
            entry = wandb_internal_pb2.Record()
            entry.ParseFromString(data)
            if entry.WhichOneof("record_type") != "history":
                continue
            row = {item.key or "/".join(item.nested_key): json.loads(item.value_json) for item in entry.history.item}
            step = row.pop("step")
            numbers.append(row["_step"])
            for name, value in row.items():
                if not name.startswith("_") and not isinstance(value, str):
                    got[name].append((step, value))
    assert numbers == list(range(len(numbers))), f"wandb: the entries have the numbers {numbers}"
    compare("wandb", want, got)


def main():
    store, run = sys.argv[1:3]
    want = record(store, run)
    for kind, place in zip(sys.argv[3::2], sys.argv[4::2]):
        {"tensorboard": tensorboard, "trackio": trackio, "wandb": wandb}[kind](place, run, want)


main()
