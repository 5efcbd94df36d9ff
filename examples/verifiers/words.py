"""A small taskset of verifiers, as its users write them."""

from collections.abc import Iterable
from typing import Literal

from verifiers import v1 as vf


class WordsConfig(vf.TasksetConfig):
    split: Literal["train", "gate", "test"] = "train"


class WordData(vf.TaskData):
    word: str


class WordTask(vf.Task[WordData]):
    @vf.reward(weight=0.9)
    async def letters(self, trace: vf.Trace) -> float:
        """The share of the reply's characters that are lower-case letters or spaces."""
        reply = trace.last_reply
        return sum(c.islower() or c == " " for c in reply) / max(len(reply), 1)

    @vf.reward(weight=0.1)
    async def named(self, trace: vf.Trace) -> float:
        return float(self.data.word in trace.last_reply)


class Words(vf.Taskset[WordTask, WordsConfig]):
    def load(self) -> Iterable[WordTask]:
        words = {"train": ["river", "bread"], "gate": ["train"], "test": ["chess"]}
        for word in words[self.config.split]:
            yield WordTask(WordData(id=word, prompt=f"A line about: {word}", word=word), self.config.task)
