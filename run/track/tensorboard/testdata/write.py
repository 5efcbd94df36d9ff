"""Writes events.tfevents with TensorBoard's own writer: python write.py (needs the package tensorboard)."""

import os
import tempfile

import numpy as np
from tensorboard.compat.proto import event_pb2, summary_pb2
from tensorboard.plugins.text import metadata
from tensorboard.summary.writer.event_file_writer import EventFileWriter
from tensorboard.util import tensor_util

at = 1_700_000_000
with tempfile.TemporaryDirectory() as folder:
    writer = EventFileWriter(folder)
    writer.flush()
    values = [summary_pb2.Summary.Value(tag=tag, simple_value=value) for tag, value in [("reward", 0.5), ("batch/rollouts", 64), ("train/loss", -0.0625)]]
    writer.add_event(event_pb2.Event(wall_time=at + 1.5, step=7, summary=summary_pb2.Summary(value=values)))
    text = summary_pb2.Summary.Value(
        tag="promoted/reason",
        metadata=metadata.create_summary_metadata(None, None),
        tensor=tensor_util.make_tensor_proto("version 7 (gate): **better**", dtype=np.object_),
    )
    number = summary_pb2.Summary.Value(tag="promoted/version", simple_value=7)
    writer.add_event(event_pb2.Event(wall_time=at + 2, step=7, summary=summary_pb2.Summary(value=[number, text])))
    writer.close()
    (name,) = os.listdir(folder)
    os.replace(os.path.join(folder, name), os.path.join(os.path.dirname(os.path.abspath(__file__)), "events.tfevents"))
