"""The files that start clusters and containers: parsed, and run with stand-ins for launchers."""

from __future__ import annotations

import inspect
import json
import os
import re
import shlex
import subprocess
from pathlib import Path

import pytest
import yaml

from agentgym_rl.api.plan import plan_run
from agentgym_rl.cli.commands.environments import serve
from waiting import wait_for

FOLDER = Path(__file__).parents[3] / "examples" / "cluster"

SRUN = """#!/bin/bash
while [[ $1 == --* ]]; do shift; done
exec "$@"
"""
REPORT = "2 nodes, all with agentgym-rl"


def stand_ins(folder: Path) -> dict[str, str]:
    """Make commands that write down how they were called; return the environment of a job."""
    (folder / "bin").mkdir()
    programs = {
        "srun": SRUN,
        "scontrol": "#!/bin/bash\nprintf 'node1\\nnode2\\n'\n",
        "hostname": "#!/bin/bash\necho 10.0.0.1 fe80::1\n",
        "ray": f'#!/bin/bash\necho "ray $*" >> {folder}/calls\n',
        "agentgym": f'#!/bin/bash\necho "agentgym $*" >> {folder}/calls\n'
        f'[[ $1 == doctor ]] && echo "{REPORT}" || true\n',
    }
    for name, text in programs.items():
        file = folder / "bin" / name
        file.write_text(text)
        file.chmod(0o755)
    job = {"SLURM_SUBMIT_DIR": str(folder), "SLURM_JOB_ID": "7", "SLURM_JOB_NODELIST": "node[1-2]"}
    path = f"{folder / 'bin'}:{os.environ['PATH']}"
    return {**os.environ, **job, "SLURM_JOB_NUM_NODES": "2", "PATH": path}


def run_job(folder: Path, environment: dict[str, str]) -> str:
    """Return how the job has called `agentgym train`."""
    (folder / "calls").unlink(missing_ok=True)
    line = ["bash", str(FOLDER / "slurm.sh"), "quickstart", "training.shards=2"]
    subprocess.run(line, env=environment, check=True, timeout=60, capture_output=True)
    calls = (folder / "calls").read_text().splitlines()
    return next(call for call in calls if call.startswith("agentgym train"))


def settings_of(call: str) -> list[str]:
    """Return recipe and settings of a call of `agentgym train`."""
    words = shlex.split(call.partition("agentgym train ")[2])
    return [word for word in words[: words.index("--run-dir")] if not word.startswith("--")]


def test_the_slurm_job_starts_a_cluster_and_a_run_and_resumes_it(tmp_path: Path):
    environment = stand_ins(tmp_path)
    train = run_job(tmp_path, environment)
    for start in ("--head --node-ip-address=10.0.0.1 ", "--address=10.0.0.1:6379 "):
        wait_for(lambda start=start: f"ray start {start}" in (tmp_path / "calls").read_text())
    assert train.endswith(f"--run-dir {tmp_path}/runs/slurm-7")
    recipe, *overrides = settings_of(train)
    cluster = plan_run(recipe, overrides).config.cluster
    assert (cluster.type, cluster.address) == ("ray", "10.0.0.1:6379")
    run = tmp_path / "runs" / "slurm-7"
    run.mkdir(parents=True)
    assert "--resume" not in run_job(tmp_path, environment)
    (run / "run.json").touch()  # a run that has begun, perhaps without a checkpoint
    assert "--resume" in run_job(tmp_path, environment)


def test_the_slurm_job_gives_up_where_nodes_are_missing(tmp_path: Path):
    environment = stand_ins(tmp_path) | {"SLURM_JOB_NUM_NODES": "3", "LOOKS": "1"}
    with pytest.raises(subprocess.CalledProcessError):
        run_job(tmp_path, environment)
    assert not any("train" in call for call in (tmp_path / "calls").read_text().splitlines())


def test_the_kubernetes_job_asks_for_what_its_run_needs():
    job = yaml.safe_load((FOLDER / "rayjob.yaml").read_text(encoding="utf-8"))
    assert (job["apiVersion"], job["kind"]) == ("ray.io/v1", "RayJob")
    spec = job["spec"]["rayClusterSpec"]
    assert spec["authOptions"] == {"mode": "token"}
    words = shlex.split(job["spec"]["entrypoint"])
    recipe, *overrides = [word for word in words[2:] if not word.startswith(("--", "/"))]
    config = plan_run(recipe, overrides).config
    assert config.cluster.type == "ray"
    (group,) = spec["workerGroupSpecs"]
    pods = [spec["headGroupSpec"]["template"]["spec"], group["template"]["spec"]]
    for pod in pods:
        (container,) = pod["containers"]
        (mount,) = container["volumeMounts"]
        assert mount["mountPath"] == config.cluster.shared_folder
        assert mount["name"] == pod["volumes"][0]["name"]
    limits = pods[1]["containers"][0]["resources"]["limits"]
    num_gpus = int(limits["nvidia.com/gpu"]) * group["replicas"]
    assert num_gpus == config.training.shards + config.cluster.engines


def test_the_container_of_environment_servers_is_whole():
    text = (FOLDER / "env-server.Dockerfile").read_text(encoding="utf-8")
    lines = re.sub(r"\\\n\s*", " ", text).splitlines()
    parsed = [line.split(" ", 1) for line in lines if line and not line.startswith("#")]
    found = dict(parsed)
    assert next(name for name, _ in parsed) == "FROM" and "USER" in found
    assert found["STOPSIGNAL"] == "SIGTERM"
    health = found["HEALTHCHECK"].partition("CMD ")[2]
    compile(json.loads(health)[2], "health check", "exec")
    _, _, script = json.loads(found["ENTRYPOINT"])
    assert script.startswith("exec agentgym serve ")
    options = {
        name.removeprefix("--").replace("-", "_") for name in re.findall(r"--[a-z-]+", script)
    }
    assert options <= set(inspect.signature(serve).parameters)
    assert found["EXPOSE"] in script and f":{found['EXPOSE']}/health" in health
