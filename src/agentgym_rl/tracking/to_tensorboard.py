"""TensorBoard: event files in tracking/tensorboard/, found by `tensorboard --logdir runs`.

A run that resumes writes them anew from metrics.jsonl, behind a mark that makes a TensorBoard that
is open forget what it had. Numbers are float32, as the format has them.
"""

from __future__ import annotations

import io
import time
from pathlib import Path
from typing import ClassVar

from PIL import Image
from tensorboard.compat.proto.event_pb2 import Event, SessionLog
from tensorboard.compat.proto.summary_pb2 import Summary, SummaryMetadata
from tensorboard.compat.proto.tensor_pb2 import TensorProto
from tensorboard.compat.proto.types_pb2 import DT_STRING
from tensorboard.summary.writer.event_file_writer import EventFileWriter

from agentgym_rl.tracking.base import NOTHING_YET, Entry, SampleEpisode, TrackedRun, Tracker


class TensorBoardTracker(Tracker):
    """Writes event files."""

    is_live: ClassVar[bool] = True

    def open(self, run: TrackedRun) -> int:
        folder = run.own_files / "tensorboard"
        for file in folder.glob("events.out.tfevents.*"):
            file.unlink()
        self._writer, self._last_step = EventFileWriter(str(folder)), 0
        start = SessionLog(status=SessionLog.START)
        self._writer.add_event(Event(wall_time=time.time(), step=0, session_log=start))
        self._add(0, [_text("configuration", f"```toml\n{run.config_text}\n```")])
        return NOTHING_YET

    def log(self, entry: Entry) -> None:
        values = [
            Summary.Value(tag=name, simple_value=number) for name, number in entry.numbers.items()
        ]
        values += [_text(f"episodes/{index}", _markdown(episode))
                   for index, episode in enumerate(entry.episodes)]  # fmt: skip
        values += [_picture(f"episodes/{index}", episode.picture)
                   for index, episode in enumerate(entry.episodes) if episode.picture]  # fmt: skip
        self._last_step = entry.step
        self._add(entry.step, values)

    def finish(self, model: Path | None) -> None:
        if model is not None:
            self._add(self._last_step, [_text("model", f"`{model.resolve()}`")])
        self._writer.close()

    def _add(self, step: int, values: list[Summary.Value]) -> None:
        event = Event(wall_time=time.time(), step=step, summary=Summary(value=values))
        self._writer.add_event(event)
        self._writer.flush()


def _text(tag: str, text: str) -> Summary.Value:
    kind = SummaryMetadata(plugin_data=SummaryMetadata.PluginData(plugin_name="text"))
    tensor = TensorProto(dtype=DT_STRING, string_val=[text.encode("utf-8")])
    return Summary.Value(tag=f"{tag}/text_summary", metadata=kind, tensor=tensor)


def _picture(tag: str, file: Path) -> Summary.Value:
    data = file.read_bytes()
    with Image.open(io.BytesIO(data)) as picture:
        width, height = picture.size
    shown = Summary.Image(height=height, width=width, colorspace=3, encoded_image_string=data)
    return Summary.Value(tag=f"{tag}/picture", image=shown)


def _markdown(episode: SampleEpisode) -> str:
    facts = zip(SampleEpisode.columns(), episode.row(), strict=True)
    head = [f"**{name}** {value}" for name, value in facts if name not in ("goal", "text")]
    return "\n\n".join([", ".join(head), _quoted(episode.goal), _quoted(episode.text)])


def _quoted(text: str) -> str:
    return "\n".join(f"    {line}" for line in text.splitlines())
