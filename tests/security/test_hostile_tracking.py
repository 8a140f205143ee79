"""A run folder that wants a tracker to send files of the user that are none of the run's."""

from __future__ import annotations

from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from agentgym_rl.runs.folder import RunFolder
from agentgym_rl.tracking.entries import EntryReader
from ui_servers import make_run

PNG = b"\x89PNG\r\n\x1a\n"


def name_pictures(run: RunFolder, name: str) -> None:
    """Let every round of the first step name a picture."""
    part = run.episodes / "train-000001.parquet"
    table = pq.read_table(part)
    rows = table.to_pylist()
    for row in rows:
        for item in row["rounds"]:
            item["picture"] = name
    pq.write_table(pa.Table.from_pylist(rows, schema=table.schema), part)


@pytest.mark.parametrize("name", ["../../../../../secret.png", "{secret}", "0-0.png", "..", ""])
def test_a_picture_is_of_the_run_or_not_sent(name: str, tmp_path: Path):
    secret = tmp_path / "secret.png"
    secret.write_bytes(PNG)
    run = make_run(tmp_path / "runs" / "hostile")
    pictures = run.episodes / "pictures" / "train-000001"
    pictures.mkdir(parents=True)
    (pictures / "0-0.png").symlink_to(secret)
    name_pictures(run, name.format(secret=secret))
    entry = EntryReader(run.path).next_after(0, until=1)
    assert entry is not None and entry.episodes
    assert [episode.picture for episode in entry.episodes if episode.picture] == []
