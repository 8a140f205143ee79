"""A learner whose weights, gradients and optimiser are spread over processes (FSDP2).

The controller keeps the policy that the engine samples with. It divides samples among the ranks,
adds up what they report, and gets the trained weights through a file. The numbers are those of one
process, up to the order of sums.
"""

from __future__ import annotations

import pickle
import shutil
import time
import weakref
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TypeVar, cast

import torch
from safetensors.torch import load_file, save_file

from agentgym_rl.config import TrainingConfig
from agentgym_rl.engines.channels.delivery import Delivery, Given
from agentgym_rl.errors import ConfigError
from agentgym_rl.models.forward import ActionLogprobs, check_prefix_sharing
from agentgym_rl.models.loading import DTYPES, Policy
from agentgym_rl.models.lora import has_lora
from agentgym_rl.models.sequence_parallel import check_sequence_parallel
from agentgym_rl.models.sharding import trained_weights
from agentgym_rl.runs.scratch import Scratch
from agentgym_rl.training.algorithms.aggregation import Aggregation, Weights
from agentgym_rl.training.algorithms.base import (
    Needs,
    ScoredEpisode,
    ScoredSample,
    Scores,
    TrainingSample,
)
from agentgym_rl.training.learner.learner import (
    STATE_FILE,
    STATE_SHARDS,
    LossFunction,
    Observer,
    update_weights,
    whole_report,
)
from agentgym_rl.training.learner.packing import packing_of
from agentgym_rl.training.learner.scoring import bootstrap_groups, regrouped
from agentgym_rl.training.learner.sharded.rank import (
    RankPlan,
    ScoreOrder,
    Updated,
    UpdateOrder,
    ValuesOrder,
)
from agentgym_rl.training.learner.sharded.ranks import Ranks, StartRanks, start_ranks_here
from agentgym_rl.training.learner.sharded.shard_files import read_names
from agentgym_rl.training.learner.sharded.shares import Share, make_shares
from agentgym_rl.training.learner.sharded.wire import pack
from agentgym_rl.training.learner.speed import Speed
from agentgym_rl.training.learner.token_kinds import KindWeights
from agentgym_rl.training.learner.update_report import UpdateReport
from agentgym_rl.types import Group, Sample

_TIMEOUT_S = 1800.0
"""For one order, and for one message between ranks."""
_Item = TypeVar("_Item")


class ShardedLearner:
    """A `LearnerGroup` of `config.shards` processes, one for each GPU, or on the CPU."""

    def __init__(  # noqa: PLR0913 - those of `Learner`, and what decides the ranks
        self,
        policy: Policy,
        config: TrainingConfig,
        *,
        temperature: float,
        needs: Needs | None = None,
        aggregation: Aggregation | None = None,
        kind_weights: KindWeights | None = None,
        num_updates: int = 0,
        device: str = "",
        start: StartRanks = start_ranks_here,
        scratch_in: Path | None = None,
    ) -> None:
        """`device` is the type of the ranks' devices; by default that of the policy's. Files for
        the ranks are in a folder in `scratch_in`; by default the system's."""
        if config.share_prefix:
            check_prefix_sharing(policy.model)
        if config.sequence_parallel > 1:
            check_sequence_parallel(policy.model, config.sequence_parallel)
        self._policy, self._config = policy, config
        self._needs, self._aggregation = needs or Needs(), aggregation or Aggregation()
        self._num_sharing, device = config.sequence_parallel, device or policy.model.device.type
        scratch = Scratch("agentgym-learner-", scratch_in)
        self._folder = scratch.path
        self._remove_folder = weakref.finalize(self, scratch.remove)
        self._speed = Speed(
            policy.model, shares_prefix=config.share_prefix, num_devices=config.shards
        )
        self._num_tokens = [0] * config.shards
        """Of each rank, since the rates were taken."""
        self._is_behind = False
        """Whether the ranks have learned something that the policy has not got yet."""
        self._ranks: Ranks | None = None
        plan = RankPlan(
            folder=self._folder,
            dtype=next(name for name, kind in DTYPES.items() if kind == policy.model.dtype),
            device=device,
            has_lora=has_lora(policy.model),
            num_threads=max(1, torch.get_num_threads() // config.shards),
            timeout_s=_TIMEOUT_S,
            training=config,
            temperature=temperature,
            needs=self._needs,
            kind_weights=kind_weights or {},
            num_updates=num_updates,
        )
        try:
            policy.save_apart(plan.policy)
            self._ranks = start(plan, config.shards)
        except BaseException:
            self.close()
            raise
        shutil.rmtree(plan.policy)

    def score(self, groups: Sequence[Group]) -> list[list[ScoredEpisode]]:
        """Return the episodes with what `needs` asks for, under the present weights."""
        samples = [s for group in groups for episode in group.episodes for s in episode.samples]
        scored = regrouped(groups, self.score_samples(samples))
        if self._needs.critic is None or not self._needs.critic.bootstraps:
            return scored
        return bootstrap_groups(scored, self._policy, self._final_values)

    def score_samples(self, samples: Sequence[Sample]) -> list[ScoredSample]:
        """Return samples without groups, with what `needs` asks for."""
        needs = self._needs
        asked = (needs.policy, needs.reference, needs.critic is not None)
        nothing = Scores(*(() if is_asked else None for is_asked in asked))
        if not any(asked):
            return [ScoredSample(sample) for sample in samples]
        places = [place for place, sample in enumerate(samples) if sample.num_action_tokens]
        items = [_unweighted(samples[place]) for place in places]
        found = dict(zip(places, self._score(items), strict=True))
        return [
            ScoredSample(sample, found.get(place, nothing)) for place, sample in enumerate(samples)
        ]

    def update(
        self,
        samples: Sequence[TrainingSample],
        loss: LossFunction,
        *,
        updates_policy: bool = True,
        kept_share: float = 1.0,
        observe: Observer | None = None,
    ) -> UpdateReport:
        """Make one optimiser update on the aggregated loss, as `Learner.update` does."""
        weights = update_weights(self._aggregation, samples, kept_share=kept_share)
        started = time.monotonic()
        _check_that_it_pickles(loss)
        # The others have no gradient, and a pass of them alone would leave its rank behind.
        learned = [
            (item, w) for item, w in zip(samples, weights.samples, strict=True) if item.num_tokens
        ]
        items = [item for item, _ in learned]
        shares = self._shares([item.sample.token_ids for item in items])
        orders = [
            UpdateOrder(
                work=_score_order(items, share),
                weights=Weights(
                    tuple(learned[place][1] for place in share.places), weights.divisor
                ),
                loss=loss,
                updates_policy=updates_policy,
                is_observed=observe is not None,
            )
            for share in shares
        ]
        self._is_behind = True
        answers = cast("list[Updated]", self._call_shares("update", orders))
        passes = [[items[place] for place in own] for share in shares for own in share.passes]
        self._speed.add(passes, started=started)
        for rank, share in enumerate(shares):
            self._num_tokens[rank] += sum(items[place].length for place in share.places)
        if observe is not None:
            _report_passes(observe, items, shares, answers)
        totals: dict[str, float] = {}
        for answer in answers:
            for name, value in answer.totals.items():
                totals[name] = totals.get(name, 0.0) + value
        return whole_report(answers[0].applied, totals, samples, divisor=weights.divisor)

    @torch.no_grad()
    def fetch_weights(self) -> None:
        """Bring the policy up to date with the ranks; does nothing if it is."""
        if not self._is_behind:
            return
        file = self._folder / "weights.safetensors"
        self._call_all("save_weights", file)
        saved = load_file(file)
        for name, weight in trained_weights(self._policy.model):
            weight.copy_(saved[name])
        file.unlink()
        self._is_behind = False

    def give_weights(self, delivery: Delivery) -> Given:
        """Give the trained weights to engines, from the first rank, past this process."""
        given = cast("list[Given]", self._call("give_weights", [delivery] * self._config.shards))
        return given[0]

    def schedule_after(self, num_updates: int) -> None:
        """Continue the learning rate's schedule after this many planned updates."""
        self._call_all("schedule_after", num_updates)

    def take_rates(self) -> dict[str, float]:
        """Return how fast the updates since the last call were (training/learner/speed.py), and
        how many tokens each rank has computed."""
        rates = self._speed.take()
        if rates:
            tokens = enumerate(self._num_tokens)
            rates |= {f"cluster/tokens_rank_{rank}": float(num) for rank, num in tokens}
        self._num_tokens = [0] * self._config.shards
        return rates

    def restart(self) -> None:
        """Begin anew with the policy's present weights: no momentum, no updates counted."""
        file = self._folder / "start.safetensors"
        weights = trained_weights(self._policy.model)
        save_file({name: weight.detach().cpu().contiguous() for name, weight in weights}, file)
        self._call_all("restart", file)
        file.unlink()
        self._is_behind = False

    def save_state(self, folder: Path) -> Callable[[], None]:
        """Let the ranks copy what a checkpoint keeps beside the weights, and write the copies.

        The returned call waits until all is written and synced.
        """
        shards = folder.absolute() / STATE_SHARDS
        shards.mkdir()
        self._call_all("save_state", shards)
        assert self._ranks is not None, "the constructor starts them"
        return self._ranks.wait_written

    def restore_state(self, folder: Path) -> None:
        """Resume from what `save_state` of any number of ranks, or of one process, wrote."""
        shards, file = folder / STATE_SHARDS, folder / STATE_FILE
        if shards.exists():  # both raise if something is damaged
            read_names(shards)
        else:
            torch.load(file, weights_only=True, map_location="cpu", mmap=True)
        self._call_all("load_state", folder.absolute())

    def check(self) -> None:
        """Raise LearnerDiedError if a rank has died."""
        assert self._ranks is not None, "the constructor starts them"
        self._ranks.check()

    def close(self) -> None:
        """End the ranks; calling it again does nothing."""
        if self._ranks is not None:
            self._ranks.close()
        self._remove_folder()

    def _score(self, items: Sequence[TrainingSample]) -> list[Scores]:
        if not items:
            return []
        shares = self._shares([item.sample.token_ids for item in items])
        orders = [_score_order(items, share) for share in shares]
        answers = cast("list[list[Scores]]", self._call_shares("score", orders))
        return _in_order(shares, answers)

    def _final_values(self, sequences: Sequence[Sequence[int]]) -> list[float]:
        if not sequences:
            return []
        shares = self._shares(sequences)
        filler = min(sequences, key=len)
        orders = [
            ValuesOrder([sequences[place] for place in share.places], filler, share.num_fillers)
            for share in shares
        ]
        answers = cast("list[list[float]]", self._call_shares("final_values", orders))
        return _in_order(shares, answers)

    def _shares(self, sequences: Sequence[Sequence[int]]) -> list[Share]:
        """Return one share for each rank, or for the ranks that make their passes together."""
        num_shares = self._config.shards // self._num_sharing
        return make_shares(sequences, num_shares=num_shares, packing=packing_of(self._config))

    def _call_shares(self, name: str, orders: Sequence[object]) -> list[object]:
        """Give an order for each share; return one answer for each."""
        arguments = [order for order in orders for _ in range(self._num_sharing)]
        return self._call(name, arguments)[:: self._num_sharing]

    def _call_all(self, name: str, argument: object) -> None:
        self._call(name, [argument] * self._config.shards)

    def _call(self, name: str, arguments: Sequence[object]) -> list[object]:
        assert self._ranks is not None, "the constructor starts them"
        return self._ranks.call(name, arguments)


def _score_order(items: Sequence[TrainingSample], share: Share) -> ScoreOrder:
    filler = min(items, key=lambda item: item.length)
    return ScoreOrder(
        pack([items[place] for place in share.places]), pack([filler]), share.num_fillers
    )


def _unweighted(sample: Sample) -> TrainingSample:
    return TrainingSample(sample, (0.0,) * sample.num_action_tokens)


def _in_order(shares: Sequence[Share], answers: Sequence[Sequence[_Item]]) -> list[_Item]:
    """Return the answers of all ranks in the order of what was asked."""
    found = {
        place: answer
        for share, own in zip(shares, answers, strict=True)
        for place, answer in zip(share.places, own, strict=True)
    }
    return [found[place] for place in range(len(found))]


def _report_passes(
    observe: Observer,
    items: Sequence[TrainingSample],
    shares: Sequence[Share],
    answers: Sequence[Updated],
) -> None:
    """Let an observer see each rank's samples as one pass."""
    for share, answer in zip(shares, answers, strict=True):
        if share.places:
            now = ActionLogprobs(
                torch.from_numpy(answer.logprobs_A), torch.from_numpy(answer.entropies_A)
            )
            observe([items[place] for place in share.places], now)


def _check_that_it_pickles(loss: LossFunction) -> None:
    try:
        pickle.dumps(loss)
    except (pickle.PicklingError, AttributeError, TypeError) as error:
        raise ConfigError(
            f"training.shards sends the algorithm's loss to other processes, and {loss!r} cannot "
            f"be pickled ({error}): define it at the top of a module, or set training.shards=1"
        ) from error
