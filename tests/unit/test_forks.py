"""Processes forked from one that never touched a GPU."""

from __future__ import annotations

import os

from agentgym_rl.forks import FORKS, import_before_forks


def _say_how_torch_asks(answers) -> None:
    answers.put(os.environ.get("PYTORCH_NVML_BASED_CUDA_CHECK"))


def test_a_library_that_asks_for_a_gpu_at_its_import_starts_no_cuda_in_the_server_of_forks():
    import_before_forks(__name__)
    answers = FORKS.Queue()
    process = FORKS.Process(target=_say_how_torch_asks, args=(answers,))
    process.start()
    assert answers.get(timeout=60) == "1"
    process.join()


def test_the_choice_of_a_user_is_kept(monkeypatch):
    monkeypatch.setenv("PYTORCH_NVML_BASED_CUDA_CHECK", "0")
    import_before_forks(__name__)
    assert os.environ["PYTORCH_NVML_BASED_CUDA_CHECK"] == "0"
