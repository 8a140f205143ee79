"""Run folders that somebody made to hang the UI, to fill its memory, or to read other files."""

from __future__ import annotations

import itertools
import json
import os
import socket
from collections.abc import Callable, Iterator
from pathlib import Path

import psutil
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from agentgym_rl.runs.folder import RunFolder
from case_shares import spread_over
from ui_servers import UiClient, make_run, read_whole, ui_process

SECRET = "the-secret-of-another-file"
DEADLINE_S = 20
"""Of a request, on a busy machine; none of them takes a second on an idle one."""
MAX_UI_BYTES = 600_000_000
MAX_DECODER_BYTES = 800_000_000
"""Most of it is never touched: the limit is on the address space."""
ROUTES = (
    "config", "metric_names", "metrics", "reports", "facets", "episodes", "diagnosis", "time",
)  # fmt: skip
GIGABYTES = 10 * 10**9
OWN_FILES = ("config.toml", "metrics.jsonl")
RECIPES = [
    b"a = " + b"[" * 100_000,
    b"a" + b".a" * 60_000 + b" = 1",
    b"[a" + b".a" * 60_000 + b"]",
    b"a = {b = " * 20_000,
    b"a = 0x" + b"f" * 100_000,
    b"a = 1" + b"0" * 100_000,
    b"steps = nan\n[env]\nname = inf\n",
    b'[env]\nname = "\xff\xfe\x00"',
    b"\x00" * 1000,
    b"x = 1\n" * 100_000,
    b'[env]\nname = "textcraft"\n[env.options]\n' + b"a" * 200_000 + b" = 1",
]
LINES = [
    b'{"step": 1, "a": ' + b"[" * 100_000,
    b'{"step": ' + b"1" * 100_000 + b"}",
    b'{"step": NaN}\n{"step": Infinity}\n{"step": -1e999}',
    b'{"step": 1, "a": 1' + b"0" * 5000 + b"}",
    b'{"step": 1, "' + b"a" * 2_000_000 + b'": 1}',
    b"\xff" * 100_000,
    b'{"step": 1, "a": {"b": ' * 5000,
]


@pytest.fixture(scope="module")
def root(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """All hostile runs: the UI finds them when it starts."""
    root = tmp_path_factory.mktemp("place") / "runs"
    make_run(root / "good")
    (root.parent / "secret.json").write_text(json.dumps({"secret": SECRET}))
    for kind in ODD_FILES:
        write_odd(root, kind)
    for number, text in enumerate(RECIPES):
        run = make_run(root / f"recipe-{number}", num_steps=0)
        run.config_file.write_bytes(text)
    for number, line in enumerate(LINES):
        run = make_run(root / f"metrics-{number}", num_steps=1)
        run.metrics_file.write_bytes(line + b'\n{"step": 7, "train/loss": 0.5}\n')
    for bomb in BOMBS:
        run = make_run(root / bomb.__name__, num_steps=1)
        bomb(run.episodes / "train-000009.parquet")
    write_values(make_run(root / "values", num_steps=0))
    write_doubling(make_run(root / "doubling", num_steps=1))
    write_elsewhere(make_run(root / "elsewhere", num_steps=1))
    make_run(root / "evaluation" / "inner", num_steps=1).config_file.unlink()
    make_pipe(root / "evaluation" / "evaluation.json")
    return root


@pytest.fixture(scope="module")
def ui(root: Path) -> Iterator[UiClient]:
    with ui_process(root) as client:
        yield client


def ask(ui: UiClient, route: str, **parameters: object) -> tuple[int, str]:
    """Return status and text of an answer, which must come soon and hold no secret."""
    url = f"{ui.url}/api/{route}"
    response = ui.session.get(url, params=parameters, timeout=DEADLINE_S)  # type: ignore[arg-type]  # any value
    assert response.status_code != 500 and SECRET not in response.text
    return response.status_code, response.text


def problem_of(ui: UiClient, run: str) -> str:
    """Ask every route about a run; return what the list of runs says is wrong with it."""
    for route in ROUTES:
        ask(ui, route, run=run)
    for episode in ("train-000001:0", "train-000009:0"):
        ask(ui, "episode", run=run, episode=episode)
        ask(ui, "tokens", run=run, episode=episode)
    ask(ui, "group", run=run, step=9, group=0)
    lines = json.loads(ask(ui, "runs")[1])["runs"]
    (line,) = [line for line in lines if line["run"] == run]
    assert [line for line in lines if line["run"] == "good"]
    return line["problem"] or ""


def make_pipe(file: Path) -> None:
    os.mkfifo(file)


def make_socket(file: Path) -> None:
    # The name of a socket is short, so it is bound where it is and then moved.
    short = Path("/tmp") / f"ag-{os.getpid()}"
    with socket.socket(socket.AF_UNIX) as bound:
        bound.bind(str(short))
    short.rename(file)


def make_device(file: Path) -> None:
    file.symlink_to("/dev/zero")


def make_link_out(file: Path) -> None:
    file.symlink_to(file.parents[2] / "secret.json")


def make_sparse(file: Path) -> None:
    with file.open("wb") as opened:
        opened.truncate(GIGABYTES)


ODD_FILES = {
    "pipe": make_pipe,
    "socket": make_socket,
    "folder": Path.mkdir,
    "device": make_device,
    "link": make_link_out,
    "sparse": make_sparse,
}


def write_odd(root: Path, kind: str) -> None:
    """Write runs some of whose files are no files."""
    for name in OWN_FILES:
        run = make_run(root / f"{kind}-{name}", num_steps=1)
        (run.path / name).unlink()
        ODD_FILES[kind](run.path / name)
    run = make_run(root / f"{kind}-inside", num_steps=1)
    for place in (
        run.path / "report.json",
        run.episodes / "train-000009.parquet",
        run.tokenizer / "tokenizer.json",
        run.checkpoints / "latest" / "model" / "tokenizer.json",
    ):
        place.parent.mkdir(parents=True, exist_ok=True)
        ODD_FILES[kind](place)


@pytest.mark.parametrize(("kind", "name"), spread_over(itertools.product(ODD_FILES, OWN_FILES), 4))
def test_what_is_no_file_of_a_run_is_not_read(ui: UiClient, kind: str, name: str):
    problem = problem_of(ui, f"{kind}-{name}")
    expected = {"sparse": "too large to show: 10000.0 MB", "link": "leads out", "device": "leads"}
    assert expected.get(kind, "is not a regular file") in problem


@pytest.mark.parametrize("kind", ODD_FILES)
def test_odd_reports_parts_and_tokenizers_are_not_read(ui: UiClient, kind: str):
    problem_of(ui, f"{kind}-inside")
    found = json.loads(ask(ui, "reports", run=f"{kind}-inside")[1])
    assert not found["reports"] and "report.json cannot be read" in found["problem"]
    assert read_whole(ui, f"{kind}-inside")["total"] == 4


def test_the_settings_of_an_evaluation_that_are_a_pipe(ui: UiClient):
    assert "cannot be read" in problem_of(ui, "evaluation/inner")


@pytest.mark.parametrize("number", range(len(RECIPES)))
def test_recipes_that_are_hard_to_read(ui: UiClient, number: int):
    problem_of(ui, f"recipe-{number}")


@pytest.mark.parametrize("number", range(len(LINES)))
def test_metrics_that_are_hard_to_read(ui: UiClient, number: int):
    run = f"metrics-{number}"
    assert "not the metrics" in problem_of(ui, run) or b"0" * 4000 in LINES[number]
    assert json.loads(ask(ui, "metrics", run=run)[1])["steps"][-1] == 7


def write_values(run: RunFolder) -> None:
    row = {"step": 1} | {f"m{number}": 1 for number in range(4000)}
    run.metrics_file.write_bytes((json.dumps(row).encode() + b"\n") * 510)


def test_metrics_of_endless_values_are_cut(ui: UiClient):
    assert "too large to show" in problem_of(ui, "values")


def columns_of(num_rows: int) -> dict[str, pa.Array]:
    """Return the columns that tell an episode."""
    return {
        "phase": pa.array(["train"] * num_rows),
        "step": pa.array([9] * num_rows, pa.int32()),
        "env": pa.array(["textcraft"] * num_rows),
        "stop_reason": pa.array(["success"] * num_rows),
        "group": pa.array([0] * num_rows, pa.int32()),
    }


def write(file: Path, table: pa.Table) -> None:
    pq.write_table(
        table, file, compression="zstd", write_statistics=False, store_schema=False,
        dictionary_pagesize_limit=16_000_000, data_page_size=1 << 30,
    )  # fmt: skip


def repeated(text: str, num: int) -> pa.DictionaryArray:
    """Return one text that many rows have; the file holds it once, and says so."""
    return pa.DictionaryArray.from_arrays(pa.array([0] * num, pa.int32()), pa.array([text]))


def text_bomb(file: Path) -> None:
    write(file, pa.table(columns_of(1000) | {"error": repeated("A" * 4_000_000, 1000)}))


def nested_text_bomb(file: Path) -> None:
    texts = repeated("A" * 1_000_000, 5000)
    reply = pa.StructArray.from_arrays([texts, texts, texts], ["reply", "action", "observation"])
    rounds = pa.ListArray.from_arrays(pa.array([0, 5000], pa.int32()), reply)
    write(file, pa.table(columns_of(1) | {"rounds": rounds}))


def token_bomb(file: Path) -> None:
    num = 50_000_000
    ids = pa.ListArray.from_arrays(pa.array([0, num]), pa.nulls(num, pa.int32()))
    names = ["token_ids", "loss_mask", "logprobs"]
    sample = pa.StructArray.from_arrays([ids, ids, ids], names)
    samples = pa.ListArray.from_arrays(pa.array([0, 1], pa.int32()), sample)
    write(file, pa.table(columns_of(1) | {"samples": samples}))


def row_bomb(file: Path) -> None:
    num = 2_000_000
    columns = {name: repeated("train", num) for name in ("phase", "env", "stop_reason")}
    write(file, pa.table(columns | {"step": pa.nulls(num, pa.int32())}))


def column_bomb(file: Path) -> None:
    many = {f"c{number}": pa.array([1]) for number in range(3000)}
    write(file, pa.table(columns_of(1) | many))


def group_bomb(file: Path) -> None:
    """Every episode is bearable, a group of them is not."""
    texts = repeated("A" * 500_000, 64 * 10)
    reply = pa.StructArray.from_arrays([texts, texts, texts], ["reply", "action", "observation"])
    offsets = pa.array(range(0, 64 * 10 + 1, 10), pa.int32())
    write(file, pa.table(columns_of(64) | {"rounds": pa.ListArray.from_arrays(offsets, reply)}))


def footer_bomb(file: Path) -> None:
    file.write_bytes(b"PAR1" + b"\x00" * 100 + (2**31 - 1).to_bytes(4, "little") + b"PAR1")


def no_parquet(file: Path) -> None:
    file.write_bytes(b"PAR1" + os.urandom(20_000) + (19_000).to_bytes(4, "little") + b"PAR1")


BOMBS: tuple[Callable[[Path], None], ...] = (
    text_bomb, nested_text_bomb, token_bomb, row_bomb, column_bomb, group_bomb, footer_bomb,
    no_parquet,
)  # fmt: skip


@pytest.mark.parametrize("bomb", spread_over(BOMBS, 3), ids=lambda bomb: bomb.__name__)
def test_a_part_that_unfolds_is_left_out(ui: UiClient, root: Path, bomb: Callable[[Path], None]):
    run = bomb.__name__
    assert (root / run / "episodes" / "train-000009.parquet").stat().st_size < 1_000_000
    problem_of(ui, run)
    found = read_whole(ui, run)
    assert found["total"] >= 4  # those of the other part are there
    if bomb not in (group_bomb, token_bomb):
        assert "train-000009.parquet cannot be read" in found["problem"]
    assert ask(ui, "episode", run=run, episode="train-000001:0")[0] == 200


def write_doubling(run: RunFolder) -> None:
    more = {"type": "Replace", "pattern": {"String": "a"}, "content": "a" * 1000}
    tokenizer = {
        "version": "1.0",
        "added_tokens": [],
        "model": {"type": "WordLevel", "vocab": {"a" * 64: 5, "b": 0}, "unk_token": "b"},
        "decoder": {"type": "Sequence", "decoders": [more] * 40},
    }
    run.tokenizer.mkdir()
    (run.tokenizer / "tokenizer.json").write_text(json.dumps(tokenizer))


def test_a_tokenizer_that_unfolds_is_left_out(ui: UiClient):
    status, text = ask(ui, "tokens", run="doubling", episode="train-000001:0")
    assert status == 200 and "too large" in json.loads(text)["problem"]


def write_elsewhere(run: RunFolder) -> None:
    outside = run.path.parents[1]
    run.config_file.unlink()
    settings = {"config": {"env.name": "textcraft"}, "model": str(outside)}
    (run.path / "evaluation.json").write_text(json.dumps(settings))
    (outside / "tokenizer.json").write_text(json.dumps({"secret": SECRET}))


def test_settings_do_not_make_the_ui_look_elsewhere(ui: UiClient):
    status, text = ask(ui, "tokens", run="elsewhere", episode="train-000001:0")
    assert status == 200 and "no tokenizer" in text


@pytest.mark.parametrize(
    "run", ["..", "../good", "good/../..", "/etc", "~", "good\0", "\udcff", "a" * 900, "good/model"]
)
def test_names_lead_nowhere_else(ui: UiClient, run: str):
    name = run.encode("utf-8", "surrogatepass").decode("utf-8", "replace")
    for route in ROUTES:
        assert ask(ui, route, run=name)[0] in (400, 403, 404)


def test_after_all_that_the_ui_is_small_and_well(ui: UiClient):
    # The peak of each process over its life. Runs last, after every run above was looked at.
    process = psutil.Process(ui.pid)
    assert peak_bytes(ui.pid) < MAX_UI_BYTES
    for child in process.children(recursive=True):
        assert peak_bytes(child.pid) < MAX_DECODER_BYTES
    assert ask(ui, "runs")[0] == 200


def peak_bytes(pid: int) -> int:
    """Return the most memory that a process ever had."""
    lines = Path(f"/proc/{pid}/status").read_text().splitlines()
    (line,) = [line for line in lines if line.startswith("VmHWM")]
    return int(line.split()[1]) * 1024
