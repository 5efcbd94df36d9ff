"""Makes a whole run of a small model on the engine torch, sampled and trained: learning.py HERE STATE SIZE [killed].

With "killed" the engine's program is killed by kill -9 in the middle of a step and of replies, and the worker in the
middle of a step. Prints a line of JSON with the reward of each step, what became of every prompt, how far sampler and
trainer were apart, and, of a run that is not disturbed, what a step takes beside rollouts and update.
"""

import json
import os
import re
import sqlite3
import statistics
import subprocess
import sys
import time

here, state, size = sys.argv[1:4]
killed = sys.argv[4:] == ["killed"]
steps, tasks, samples = (3, 2, 4) if size == "tiny" else (20, 8, 16)
program = os.path.join(here, "fulgurite")
os.makedirs(state)


def write(name, text):
    with open(os.path.join(state, name), "w") as f:
        f.write(text)
    return f.name


def lines(split):
    return write(split + ".jsonl", "".join(json.dumps({"id": f"{split} {i}", "input": f"{split} {i}"}) + "\n" for i in range(8)))


spec = write("spec.json", json.dumps({
    "model": {"engine": "torch"},
    "agent": {"command": [sys.executable, os.path.join(here, "agent.py")], "limits": {"calls": 1, "seconds": 300}},
    "tasks": {"train": lines("train"), "gate": lines("gate")},
    "grader": {"type": "command", "command": [sys.executable, os.path.join(here, "letters.py")], "seconds": 60},
    "sampling": {"max_tokens": 16}, "loss": {"entropy": 0.001},
    "training": {"steps": steps, "tasks_per_step": tasks, "samples_per_task": samples, "optimizer": {"learning_rate": 3e-3}},
    "evaluation": {"every": steps, "samples": 4}, "promotion": {"significance": 0.5},
}))
notes = os.path.join(state, "notes")
environment = dict(os.environ) | {
    "FULGURITE_TORCH": os.path.join(here, "watched.py"), "WATCHED_PYTHON": os.environ["FULGURITE_TORCH"], "WATCHED_NOTES": notes,
}
if killed:
    environment |= {"KILLED_PROGRAM": "2", "KILLED_WORKER": "4", "KILLED_REPLIES": "20"}


class Server:
    """Everything in one process, with its state in a folder."""

    def __enter__(self):
        self.log = open(os.path.join(state, "log"), "ab+")
        at = self.log.seek(0, os.SEEK_END)
        command = [program, "dev", "--dir", os.path.join(state, "s"), "--port", "0", "--ui-port", "0", "--gateway-port", "0"]
        self.process = subprocess.Popen(command, stdout=self.log, stderr=self.log, env=environment)
        while True:
            self.log.seek(at)
            if b"Temporal   " in self.log.read():
                return self
            if self.process.poll() is not None:
                sys.exit("fulgurite dev does not come up: " + open(self.log.name).read()[-500:])
            time.sleep(0.2)

    def __exit__(self, *_):
        self.process.terminate()
        self.process.wait()
        self.log.close()


def ask(*command):
    """The JSON that a command prints, and what it says beside."""
    done = subprocess.run([program, *command, "--dir", os.path.join(state, "s"), "--json"], capture_output=True, text=True)
    if done.returncode:
        sys.exit(f"{command}: {done.stdout[-300:]} {done.stderr[-300:]}")
    return json.loads(done.stdout), done.stderr


def outside():
    """By step but the last, seconds outside of rollouts and update, and from the end of the update to the first call on
    record that the new version answered. Grading is outside: an attempt has ended before it is graded."""
    with open(notes + ".updates") as f:
        updates = [tuple(map(float, line.split())) for line in f]
    store = sqlite3.connect(os.path.join(state, "s", "fulgurite.db"))
    rollouts = {
        step: (begun / 1e9, ended / 1e9)
        for step, begun, ended in store.execute("SELECT step, min(begun), max(ended) FROM attempts WHERE run = 'run' AND kind = 'train' GROUP BY step")
    }
    calls = {
        version: recorded / 1e9
        for version, recorded in store.execute("SELECT version, min(recorded) FROM calls WHERE run = 'run' AND kind = 'train' GROUP BY version")
    }
    store.close()
    overhead, first = [], []
    for step in range(1, steps):
        begun, ended = rollouts[step]
        update_begun, update_ended = updates[step - 1]
        overhead.append(rollouts[step + 1][0] - begun - (ended - begun) - (update_ended - update_begun))
        first.append(calls[step] - update_ended)
    return {"step_overhead_seconds": overhead, "first_call_seconds": first}


began = time.monotonic()
deaths = 0
if killed:
    with Server() as server:
        subprocess.run([program, "train", spec, "--name", "run", "--dir", os.path.join(state, "s"), "--detach"], check=True, stdout=sys.stderr)
        deaths = server.process.wait()  # the worker is killed
with Server():
    result, said = ask("train", spec, "--name", "run")
    report, _ = ask("report", "run")
    versions, _ = ask("versions", "run")
rewards = {int(step): float(reward) for step, reward in re.findall(r"step (\d+)/\d+ +reward ([0-9.]+)", said)}
rewards = list(rewards.values())  # in a run that was attached to late, those of the last steps
prompts = report["prompts"]
once = prompts["trained"] == prompts["issued"] and not prompts["duplicated"]
out = {
    "seconds": time.monotonic() - began, "rewards": rewards, "promoted": result["promoted"], "steps": result["steps"], "each_prompt_once": once,
    "prompts": {key: prompts[key] for key in ("issued", "trained", "skipped", "duplicated", "unexpected", "under_way")},
    "weights": [v["weights"] for v in versions], "mismatch": [v["metrics"]["train/mismatch"] for v in versions if v["version"] > 0],
}
verdict = f"{result['steps']} steps in {out['seconds']:.0f} s, mean reward of each: {rewards}; promoted: version {result['promoted']}; each prompt trained once: {once}"
if killed:
    sampled, passes = os.path.getsize(notes + ".replies"), os.path.getsize(notes + ".passes")
    if deaths != -9 or sampled <= 20 or passes < steps + 2:
        sys.exit(f"nothing was killed: the worker ended with {deaths}, {sampled} tokens of replies, {passes} backward passes")
    out["passes_again"] = passes - steps
    verdict = f"program killed in a step and in replies, worker in a step: {passes - steps} passes made again; " + verdict
else:
    out |= outside()
    verdict += (
        f"; seconds of a step outside of rollouts and update: {statistics.median(out['step_overhead_seconds']):.2f} in the median; from the end of an"
        f" update to the first call on record of its version: {statistics.median(out['first_call_seconds']):.2f}; mismatch without a lag:"
        f" {max(out['mismatch']):.2g} nats in the worst step"
    )
print(json.dumps(out | {"verdict": verdict}))
