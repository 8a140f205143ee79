"""One rank of a sharded learner: a process that builds its learner and does as it is told.

It gets the names of `Rank`'s methods with one argument each, and answers each of them; the whole
protocol is in ranks.py. All ranks get the same names in the same order.
"""

from __future__ import annotations

import os
import signal
import sys
import threading
import traceback
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from datetime import timedelta
from multiprocessing.connection import Connection
from pathlib import Path

import numpy as np
import torch
import torch.distributed as dist
from safetensors.torch import load_file, save_file
from torch import Tensor
from torch.distributed.device_mesh import init_device_mesh
from transformers.utils.logging import disable_progress_bar

from agentgym_rl.config import TrainingConfig
from agentgym_rl.engines.channels.delivery import Delivery, Given, WeightGiver
from agentgym_rl.engines.channels.meeting import is_local, meet, own_interface
from agentgym_rl.models.compilation import enable_compilation
from agentgym_rl.models.forward import ActionLogprobs, enable_checkpointing
from agentgym_rl.models.loading import ADAPTER, Policy, load_pretrained
from agentgym_rl.models.lora import load_adapter
from agentgym_rl.models.sequence_parallel import SequenceGroup
from agentgym_rl.models.sharding import Shards, gathered, shard_like, trained_weights, whole
from agentgym_rl.training.algorithms.aggregation import Weights
from agentgym_rl.training.algorithms.base import Needs, Scores, TrainingSample
from agentgym_rl.training.learner.learner import Learner, LossFunction
from agentgym_rl.training.learner.sharded.shard_files import copied, write_shards
from agentgym_rl.training.learner.sharded.wire import Numbers, PackedSamples, unpack
from agentgym_rl.training.learner.token_kinds import KindWeights
from agentgym_rl.training.learner.update_report import UpdateReport


@dataclass(frozen=True, slots=True)
class RankPlan:
    """What every rank builds its learner from."""

    folder: Path
    """Has the policy to begin with, and what ranks and controller exchange through files."""
    dtype: str
    device: str
    """The type of device, "cpu" or "cuda"; with GPUs each rank has its own."""
    has_lora: bool
    num_threads: int
    timeout_s: float
    training: TrainingConfig
    temperature: float
    needs: Needs
    kind_weights: KindWeights
    num_updates: int
    meeting: str = ""
    """Where ranks on several machines meet (engines/channels/meeting.py); empty: in the folder."""

    @property
    def policy(self) -> Path:
        return self.folder / "policy"

    @property
    def meeting_url(self) -> str:
        return self.meeting or (self.folder / "rendezvous").absolute().as_uri()


@dataclass(frozen=True, slots=True)
class ScoreOrder:
    """Samples to score."""

    samples: PackedSamples
    filler: PackedSamples
    num_fillers: int


@dataclass(frozen=True, slots=True)
class ValuesOrder:
    """Sequences whose last state the critic values."""

    sequences: Sequence[Sequence[int]]
    filler: Sequence[int]
    num_fillers: int


@dataclass(frozen=True, slots=True)
class UpdateOrder:
    """A rank's part of one update."""

    work: ScoreOrder
    weights: Weights
    loss: LossFunction
    updates_policy: bool
    is_observed: bool


@dataclass(frozen=True, slots=True)
class Updated:
    """What a rank's part of an update gave."""

    totals: dict[str, float]
    applied: UpdateReport
    logprobs_A: Numbers
    """Of the rank's samples, one after another, where they were asked for; entropies likewise."""
    entropies_A: Numbers


@dataclass(frozen=True, slots=True)
class Failed:
    """An answer in the place of a result."""

    error: str
    trace: str


def run_rank(
    rank: int,
    num_ranks: int,
    ends: tuple[Connection, Connection],
    plan: RankPlan,
    foreign: Sequence[Connection],
) -> None:
    """Be a rank, and end the process.

    `foreign` are ends of other ranks' links that a forked process inherits.
    """
    for other in foreign:
        other.close()
    # A process group would wait for the others.
    os._exit(answer_orders(lambda: Rank(rank, num_ranks, plan, ends[1]), ends[0]))


def answer_orders(make: Callable[[], Rank], link: Connection) -> int:
    """Answer orders until told to stop, or until the controller is gone; return the status."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C is for the controller, which ends ranks
    try:
        answerer = make()
        link.send(None)
        while True:
            name, argument = link.recv()
            link.send(getattr(answerer, name)(argument))
    except (EOFError, BrokenPipeError):
        pass  # the controller closed the link, or died
    except Exception as error:  # noqa: BLE001 - whatever it is, the controller must hear of it
        link.send(Failed(f"{type(error).__name__}: {error}", traceback.format_exc()))
        return 1
    return 0


class Rank:
    """The learner of one rank; its public methods are the orders."""

    def __init__(self, rank: int, num_ranks: int, plan: RankPlan, written: Connection) -> None:
        torch.set_num_threads(plan.num_threads)
        disable_progress_bar()  # the terminal is the controller's
        _choose_network(plan.meeting_url)
        is_gpu, deadline = plan.device == "cuda", timedelta(seconds=plan.timeout_s)
        if is_gpu:  # an actor of a cluster sees only its own
            torch.cuda.set_device(rank % torch.cuda.device_count())
        dist.init_process_group(
            # What is offloaded meets on the CPU, too: the norm of gradients, for one.
            "cpu:gloo,cuda:nccl" if is_gpu else "gloo",
            store=meet(plan.meeting_url, rank, num_ranks, deadline),
            rank=rank,
            world_size=num_ranks,
            timeout=deadline,
        )
        # Its messages are between threads, beside those of the learner.
        writers = dist.new_group(backend="gloo")
        assert isinstance(writers, dist.ProcessGroup), "every rank is in it"
        self._writers, self._written = writers, written
        self._rank, policy = rank, _load_policy(plan)
        self._model = policy.model
        self._giver = WeightGiver()
        self._dtypes = {name: weight.dtype for name, weight in trained_weights(policy.model)}
        self._learner = Learner(
            policy,
            plan.training,
            temperature=plan.temperature,
            needs=plan.needs,
            kind_weights=plan.kind_weights,
            num_updates=plan.num_updates,
            shards=Shards(
                init_device_mesh(plan.device, (num_ranks,)),
                _sequence_group(plan.training.sequence_parallel),
                is_offloaded=plan.training.offload == "all",
            ),
        )

    def score(self, order: ScoreOrder) -> list[Scores]:
        """Return the scores of the samples, in order."""
        samples = [item.sample for item in unpack(order.samples)]
        (filler,) = unpack(order.filler)
        scored = self._learner.score_samples(samples)
        for _ in range(order.num_fillers):
            self._learner.score_samples([filler.sample])
        return [item.scores for item in scored]

    def final_values(self, order: ValuesOrder) -> list[float]:
        """Return the value after each sequence, in order."""
        values = self._learner.final_values(order.sequences)
        for _ in range(order.num_fillers):
            self._learner.final_values([order.filler])
        return values

    def update(self, order: UpdateOrder) -> Updated:
        """Make one update together with the other ranks."""
        (filler,) = unpack(order.work.filler)
        seen: list[Tensor] = []

        def observe(_: Sequence[TrainingSample], now: ActionLogprobs) -> None:
            seen.append(torch.stack([now.logprobs_A.detach(), now.entropies_A.detach()]))

        totals = self._learner.accumulate(
            self._learner.passes(unpack(order.work.samples)),
            order.loss,
            order.weights,
            fillers=[filler] * order.work.num_fillers,
            observe=observe if order.is_observed else None,
        )
        applied = self._learner.apply(updates_policy=order.updates_policy)
        both_2A = torch.cat(seen, dim=1).double().cpu().numpy() if seen else np.zeros((2, 0))
        return Updated(totals, applied, both_2A[0], both_2A[1])

    def schedule_after(self, num_updates: int) -> None:
        self._learner.schedule_after(num_updates)

    def save_state(self, folder: Path) -> None:
        """Copy the learner's state and begin to write it; `written` gets None, or what failed."""
        arguments = copied(self._learner.named_state()), folder
        threading.Thread(target=self._write_state, args=arguments, daemon=True).start()

    def _write_state(self, state: Mapping[str, Tensor], folder: Path) -> None:
        try:
            write_shards(state, folder, self._writers)
            self._written.send(self._after_write(folder))
        except Exception as error:  # noqa: BLE001 - whatever it is, the controller must hear of it
            self._written.send(Failed(f"{type(error).__name__}: {error}", traceback.format_exc()))

    def _after_write(self, folder: Path) -> object:
        """Return what the controller hears of a state that is written."""
        return None

    def load_state(self, folder: Path) -> None:
        self._learner.restore_state(folder)

    def save_weights(self, file: Path) -> None:
        """Gather the trained weights; the first rank writes them in the model's type."""
        complete: dict[str, Tensor] = {}
        for name, weight in trained_weights(self._model):
            found = gathered(weight.detach())
            if self._rank == 0:
                complete[name] = found.to(self._dtypes[name]).contiguous()
        if self._rank == 0:
            save_file(complete, file)

    @torch.no_grad()
    def give_weights(self, delivery: Delivery) -> Given:
        """Gather the trained weights in the model's type; the first rank gives them to engines."""
        weights = (
            (name, whole(weight.detach().to(self._dtypes[name])))
            for name, weight in trained_weights(self._model)
        )
        given = self._giver.give(delivery if self._rank == 0 else None, weights)
        if torch.cuda.is_initialized():
            torch.cuda.empty_cache()  # an engine on this GPU is about to take memory again
        return given

    @torch.no_grad()
    def restart(self, file: Path) -> None:
        """Take the weights of a file, and forget momentum and the count of updates."""
        saved = load_file(file)
        for name, weight in trained_weights(self._model):
            weight.copy_(shard_like(saved[name].to(weight.dtype), weight))
        self._learner.restart()


def _choose_network(url: str) -> None:
    """Let this process's groups use the network on which the others reach it."""
    interface = own_interface(url) if sys.platform == "linux" else None
    if interface is not None:
        os.environ.setdefault("GLOO_SOCKET_IFNAME", interface)
        if not is_local(url):
            os.environ.setdefault("NCCL_SOCKET_IFNAME", interface)


def _sequence_group(size: int) -> SequenceGroup | None:
    """Return the ranks that share this one's passes: `size` neighbours."""
    if size == 1:
        return None
    group, _ = dist.new_subgroups(size)
    assert isinstance(group, dist.ProcessGroup), "every rank is in one"
    return SequenceGroup(group, dist.get_rank(group), size)


def _load_policy(plan: RankPlan) -> Policy:
    """Return the policy in the CPU's memory; sharding brings a rank's part to its device."""
    policy = load_pretrained(plan.policy, dtype=plan.dtype, device="cpu")
    if plan.training.gradient_checkpointing:
        enable_checkpointing(policy.model)
    if plan.training.compile:
        enable_compilation(policy.model)
    if plan.has_lora:
        load_adapter(policy.model, plan.policy / ADAPTER)
    return policy
