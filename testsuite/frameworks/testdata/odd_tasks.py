"""Tasks of verifiers whose data is no longer the same after JSON."""

from collections.abc import Iterable
from typing import Any
from verifiers import v1 as vf

class OddData(vf.TaskData):
    pair: Any
    table: dict
    hint: str | None

class OddTask(vf.Task[OddData]):
    @vf.reward(weight=1.0)
    async def right(self, trace: vf.Trace) -> float:
        return float(self.data.pair == (1, 2) and self.data.table[3] == "x" and trace.last_reply == "4")

    @vf.reward(weight=0.0)
    async def asked(self, trace: vf.Trace) -> float:
        return 1.0

class Odd(vf.Taskset[OddTask, vf.TasksetConfig]):
    def load(self) -> Iterable[OddTask]:
        row = dict(pair=(1, 2), table={3: "x"}, hint=None)
        yield OddTask(OddData(prompt="2+2?", system_prompt="Be short.", **row), self.config.task)
        yield OddTask(OddData(prompt=[vf.UserMessage(content="2+2?"), vf.AssistantMessage(content="5"), vf.UserMessage(content="Sure?")], **row), self.config.task)
        yield OddTask(OddData(prompt="1+3?", **row), self.config.task)

class Open(vf.Taskset[OddTask, vf.TasksetConfig]):
    def load(self) -> Iterable[OddTask]:
        yield OddTask(OddData(prompt=None, pair=1, table={}, hint=None), self.config.task)
