"""A wandb for tests, which keeps a run in a file of lines. As the real one, it ignores a step that it has."""

import json
import os


class Settings:
    def __init__(self, console, x_disable_stats):
        pass


class Run:
    def __init__(self, path):
        self.path = path
        self.offline = os.environ.get("WANDB_MODE") == "offline"
        self.starting_step = 0 if self.offline else self.next()
        self.limit = int(os.environ.get("TEST_LIMIT", "1000000"))

    def next(self):
        try:
            with open(self.path) as lines:
                return max([json.loads(line)["_step"] for line in lines], default=-1) + 1
        except FileNotFoundError:
            return 0

    def define_metric(self, name, step_metric=None):
        pass

    def log(self, data, step):
        if self.limit == 0:
            os._exit(3)  # as if it were killed
        self.limit -= 1
        if step >= self.next() or self.offline:
            with open(self.path, "a") as lines:
                lines.write(json.dumps({"_step": step, **data}) + "\n")

    def finish(self):
        pass


def init(project, name, id, config, resume, settings):
    assert resume == "allow"
    if name == "refused":
        raise RuntimeError("no API key")
    folder = os.path.join(os.environ["WANDB_DIR"], project)
    os.makedirs(folder, exist_ok=True)
    with open(os.path.join(folder, id + ".config"), "w") as file:
        json.dump(config, file)
    return Run(os.path.join(folder, id + ".jsonl"))
