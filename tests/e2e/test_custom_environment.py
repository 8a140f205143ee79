"""The example package, as its author uses it: installed, checked, demonstrated, served, played."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
import urllib.request
from pathlib import Path

import pytest

pytestmark = pytest.mark.slow

EXAMPLE = Path(__file__).parents[2] / "examples" / "custom_environment"
AGENTGYM = [sys.executable, "-c", "from agentgym_rl.cli.main import main; main()"]


@pytest.fixture(scope="module")
def installed(tmp_path_factory: pytest.TempPathFactory) -> dict[str, str]:
    """Install the package into a folder of its own; return an environment that sees it."""
    folder = tmp_path_factory.mktemp("custom_environment")
    source, target = folder / "source", folder / "target"
    shutil.copytree(EXAMPLE, source, ignore=shutil.ignore_patterns("__pycache__"))
    options = ["--quiet", "--no-index", "--no-deps", "--no-build-isolation", "--target", target]
    subprocess.run(
        [sys.executable, "-m", "pip", "install", "--disable-pip-version-check", *options, source],
        check=True,
        timeout=120,
    )
    return {**os.environ, "PYTHONPATH": str(target)}


def run(command: list[str], env: dict[str, str], cwd: Path) -> str:
    result = subprocess.run(
        command, env=env, cwd=cwd, capture_output=True, text=True, timeout=120, check=False
    )
    assert result.returncode == 0, result.stdout + result.stderr
    return result.stdout


def post(url: str, body: object) -> dict[str, object]:
    request = urllib.request.Request(
        url, json.dumps(body).encode(), {"Content-Type": "application/json"}, method="POST"
    )
    with urllib.request.urlopen(request, timeout=20) as answer:
        return json.load(answer)


def test_it_passes_its_own_tests(installed: dict[str, str], tmp_path: Path):
    tests = str(EXAMPLE / "tests")
    command = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", tests]
    assert "passed" in run([*command, f"--rootdir={tmp_path}"], installed, tmp_path)


def test_it_is_known_by_its_name(installed: dict[str, str], tmp_path: Path):
    output = run([*AGENTGYM, "check", "lights_out"], installed, tmp_path)
    assert "the expert solves 100.0%" in output
    assert "the contract holds" in output


@pytest.mark.long
def test_its_expert_writes_demonstrations(installed: dict[str, str], tmp_path: Path):
    words = ["demos", "lights_out", "-n", "3", "-o", "demos.jsonl"]
    run([*AGENTGYM, *words], installed, tmp_path)
    lines = (tmp_path / "demos.jsonl").read_text().splitlines()
    assert len(lines) == 3
    assert all("press" in line for line in lines)


def test_it_is_played_over_a_server(installed: dict[str, str], tmp_path: Path):
    server = subprocess.Popen(
        [*AGENTGYM, "serve", "lights_out", "--port", "0", "show_distance=true"],
        env=installed,
        cwd=tmp_path,
        stdout=subprocess.PIPE,
        text=True,
    )
    try:
        assert server.stdout is not None
        url = server.stdout.readline().split(" at ")[1].split()[0]
        episode = post(f"{url}/episodes", {})["episode"]
        task = {"env": "lights_out", "split": "train", "index": 0b10010}
        first = post(f"{url}/episodes/{episode}/reset", {"task": task})
        assert str(first["observation"]).endswith("Presses left: 2")
        post(f"{url}/episodes/{episode}/step", {"round": 0, "action": "press 1 2"})
        last = post(f"{url}/episodes/{episode}/step", {"round": 1, "action": "press 2 2"})
        assert (last["reward"], last["success"]) == (1.0, True)
        give_back = urllib.request.Request(f"{url}/episodes/{episode}", method="DELETE")
        urllib.request.urlopen(give_back, timeout=20).close()
        server.terminate()
        server.wait(timeout=20)
    finally:
        server.kill()
