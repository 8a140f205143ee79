"""Servers of the Model Context Protocol as environments: real processes, and broken ones."""

from __future__ import annotations

import json
import os
import sys
import time
from collections.abc import Sequence
from pathlib import Path

import pytest

from agentgym_rl.envs import registry
from agentgym_rl.envs.adapters.mcp import McpEpisode, McpServer, McpTask, mcp_class, session
from agentgym_rl.envs.checking.checker import check
from agentgym_rl.errors import EnvError, EnvGoneError, EnvTimeoutError
from mcp_servers import QUICK, REAL, server_of
from waiting import wait_for

TASKS = (
    McpTask(goal="Count to 3.", expert=("count(by=3)", 'answer(text="3")'), data={"sum": "3"}),
    McpTask(goal="Count to 4.", split="test", expert=("count(by=4)", 'answer(text="4")'),
            data={"sum": "4"}),
)  # fmt: skip


def counted(episode: McpEpisode) -> float:
    return float(episode.final == episode.task.data["sum"] == episode.answer)


def quick(folder: Path, *words: str, tasks: Sequence[McpTask] = TASKS, **limits: float):
    server = server_of(folder, QUICK, *words, **limits)
    return mcp_class(server, name="quick", tasks=tasks, score=counted, final_call="count(by=0)")


def is_alive(pid: int) -> bool:
    try:
        state = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]
    except FileNotFoundError:
        return False
    return state != "Z"


def test_a_real_server_from_mcp_json(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    server_of(tmp_path, REAL)
    task = {"goal": "Send 3 to b.", "expert": ['send("a", "b", 3)', 'answer("")'], "data": {}}
    (tmp_path / "tasks.jsonl").write_text(json.dumps(task) + "\n")
    (tmp_path / "ledger_score.py").write_text(
        "def score(episode):\n    return float('\"b\": 3' in episode.final)\n"
    )
    ours = {"tasks": "tasks.jsonl", "score": "ledger_score:score", "final_call": "dump()"}
    entry = {"command": sys.executable, "args": ["server.py"], "cwd": str(tmp_path)}
    servers = {"mcpServers": {"ledger": {**entry, "agentgym": ours}}}
    (tmp_path / "mcp.json").write_text(json.dumps(servers))
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(str(tmp_path))
    env = registry.make("mcp/ledger", {})
    assert [tool["function"]["name"] for tool in env.spec.tools] == ["send", "dump", "answer"]
    assert env.reset(env.tasks("train")[0]) == "Send 3 to b."
    assert env.step('send("a", "b", 9)').valid_action is False
    refused = env.step('send("a", "b")')
    assert refused.observation.startswith("`send` was not called: the argument `amount` is missing")
    assert env.step('send("a", "b", "x")').valid_action is False
    assert env.step('send("a", "b", 3)').observation == "sent"
    result = env.step('answer("done")')
    assert (result.reward, result.success) == (1.0, True)
    env.close()
    env.close()


def test_episodes_do_not_share_a_process_and_none_is_left_behind(tmp_path: Path):
    cls = quick(tmp_path)
    first, second = cls(), cls()
    pids = list[int]()
    for env in (first, second):
        env.reset(cls.tasks("train")[0])
        pids += map(int, env.step("pid()").observation.split())
    assert first.step("count(2)").observation == "2"
    assert second.step("count(1)").observation == "1"
    assert first.step('count("x")').observation == "not a number"
    assert first.step('count("\\ud800")').observation == "not a number", "it can be sent"
    assert first.step("count(2)").observation == "4"
    first.close()
    second.close()
    assert len(set(pids)) == 4
    # The children of a server end with its process group, a moment after the signal.
    wait_for(lambda: not any(map(is_alive, pids)), timeout_s=10.0)


@pytest.mark.long
def test_the_contract_holds(tmp_path: Path):
    report = check(quick_counting(tmp_path), tasks_per_split=1, num_processes=0)
    assert report.problems == () and report.expert_success_rate == 1.0


def quick_counting(folder: Path):
    """The quick server without the tools that break it or tell process ids."""
    program = QUICK.replace('("hang", "die", "pid")', "()")
    server = server_of(folder, program)
    return mcp_class(server, name="quick", tasks=TASKS, score=counted, final_call="count(by=0)")


def test_a_server_that_hangs_is_ended_at_the_deadline(tmp_path: Path):
    env = quick(tmp_path, call_timeout_s=8.0)()
    env.reset(env.tasks("train")[0])
    server, child = map(int, env.step("pid()").observation.split())
    env._session._server = server_of(tmp_path, QUICK, call_timeout_s=0.3)  # an impatient deadline
    with pytest.raises(EnvTimeoutError, match=r"the tool hang .* passed its deadline of 0.3 s"):
        env.step("hang()")
    env.close()
    wait_for(lambda: not is_alive(server) and not is_alive(child), timeout_s=10.0)


def test_a_server_that_dies_is_gone_with_what_it_said(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    env = quick(tmp_path)()
    env.reset(env.tasks("train")[0])
    signalled = list[int]()
    killpg = os.killpg

    def note(group: int, number: int) -> None:
        signalled.append(group)
        killpg(group, number)

    monkeypatch.setattr(os, "killpg", note)
    with pytest.raises(EnvGoneError, match="it said: no more"):
        env.step("die()")
    with pytest.raises(EnvError):
        env.step("count(1)")
    env.reset(env.tasks("train")[0])
    assert len(signalled) == 1, "at once, while the id is its own"
    assert env.step("count(1)").observation == "1", "a reset starts another"
    monkeypatch.setattr(session, "_began", lambda process: 10**12)  # the id is another's by now
    env.close()
    assert len(signalled) == 1


def test_only_the_end_of_what_a_server_says_is_read(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    sizes, pread = list[int](), os.pread
    monkeypatch.setattr(os, "pread", lambda *given: sizes.append(given[1]) or pread(*given))
    chatty = "import sys\nsys.stderr.write('x' * 500_000 + '\\nthe end')"
    with pytest.raises(EnvError, match="it said: the end"):
        mcp_class(server_of(tmp_path, chatty), name="chatty")
    assert sizes == [2**16]


def test_a_server_that_does_not_start(tmp_path: Path):
    began = time.monotonic()
    with pytest.raises(EnvTimeoutError, match=r"was not ready within 0.5 s"):
        quick(tmp_path, "slow-start", start_timeout_s=0.5)
    assert time.monotonic() - began < 60
    broken = server_of(tmp_path, "import no_such_package_of_ours")
    with pytest.raises(EnvError, match=r"did not start.*no_such_package_of_ours"):
        mcp_class(broken, name="broken")
    missing = type(broken)(command=(str(tmp_path / "nothing"),))
    with pytest.raises(EnvError, match="did not start"):
        mcp_class(missing, name="missing")


def test_neither_arguments_nor_addresses_are_shown(tmp_path: Path):
    secret = server_of(tmp_path, QUICK, "--key=hunter2")
    cls = mcp_class(secret, name="quick")
    assert "hunter2" not in cls.spec.summary and str(tmp_path) not in cls.spec.summary
    assert McpServer(url="https://me:hunter2@tools.test:8443/mcp?key=hunter2").shown == (
        "https://tools.test:8443"
    )
    with pytest.raises(EnvError) as caught:
        mcp_class(McpServer(url="http://me:hunter2@127.0.0.1:1/hunter2"), name="away")
    assert "hunter2" not in str(caught.value)


def test_an_expert_goes_through_its_plan_however_it_is_written(tmp_path: Path):
    task = McpTask(goal="Count to 4.", expert=("count(2)", "count( 2 )", 'answer("4")'))
    env = mcp_class(server_of(tmp_path, QUICK), name="quick", tasks=[task], score=lambda _: 1.0)()
    env.reset(env.tasks("train")[0])
    env.step("count(by=1)")
    for planned in task.expert:
        assert env.expert_action() == planned
        result = env.step(planned)
    assert result.reward == 1.0 and env.expert_action() is None
    env.close()


def test_what_mcp_json_lacks_is_said(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.chdir(tmp_path)
    with pytest.raises(ValueError, match=r"needs a file mcp\.json"):
        registry.env_class("mcp/book")
    (tmp_path / "mcp.json").write_text('{"mcpServers": {"books": {"command": "x"}}}')
    with pytest.raises(ValueError, match=r"no server .book. .did you mean .books."):
        registry.env_class("mcp/book")
    with pytest.raises(ValueError, match="no server 'rm -rf'"):
        registry.env_class("mcp/rm -rf")


def test_an_expert_may_leave_out_names_and_make_a_call_twice(tmp_path: Path):
    calls = ("count(1)", "count(1)", "count(by=2)", 'answer("4")')
    env = quick(tmp_path, tasks=[McpTask(goal="Count to 4.", expert=calls, data={"sum": "4"})])()
    env.reset(env.tasks("train")[0])
    made = list[str]()
    while (action := env.expert_action()) is not None and len(made) < 9:
        made.append(action)
        result = env.step(action)
    env.close()
    assert tuple(made) == calls and result.success


def test_an_expert_needs_calls_that_exist_and_a_reward(tmp_path: Path):
    server = server_of(tmp_path, QUICK)
    with pytest.raises(ValueError, match=r"'jump\(\)' cannot be made: There is no tool 'jump'"):
        mcp_class(server, name="quick", tasks=[McpTask(goal="Go.", expert=("jump()",))])
    with pytest.raises(ValueError, match="need a `score`"):
        mcp_class(server, name="quick", tasks=[McpTask(goal="Go.", expert=("count(by=1)",))])
