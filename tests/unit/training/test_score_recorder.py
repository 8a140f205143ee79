"""Token recorder: what the learner computed anyway reaches the episode store."""

from __future__ import annotations

import pytest
import torch

from agentgym_rl.models.forward import ActionLogprobs
from agentgym_rl.training.algorithms.base import Scores, TrainingSample
from agentgym_rl.training.learner.score_recorder import ScoreRecorder
from agentgym_rl.types import Sample


def item_of(num_tokens: int, advantage: float, scores: Scores | None = None) -> TrainingSample:
    ones, zeros = (1,) * num_tokens, (0.0,) * num_tokens
    sample = Sample(ones, ones, zeros, zeros, segments=(), version=0)
    return TrainingSample(sample, (advantage,) * num_tokens, scores or Scores())


def computed(*logprobs: float) -> ActionLogprobs:
    logprobs_A = torch.tensor(logprobs, requires_grad=True)
    return ActionLogprobs(logprobs_A, -logprobs_A)


def test_each_sample_gets_its_part_of_the_first_pass_over_it():
    first, second = item_of(1, 0.5), item_of(2, -1.0)
    recorder = ScoreRecorder()
    recorder.add_advantages([first, second])
    recorder.record_pass([first, second], computed(-1.0, -2.0, -3.0))
    recorder.record_pass([first, second], computed(-9.0, -9.0, -9.0))  # the next epoch
    scores = recorder.scores_of(second.sample)
    assert scores is not None
    assert scores.learner_logprobs == pytest.approx([-2.0, -3.0])
    assert scores.entropies == pytest.approx([2.0, 3.0])
    assert scores.advantages == (-1.0, -1.0)


def test_scores_from_before_the_first_update_are_preferred():
    item = item_of(2, 1.0, Scores(logprobs=(-0.25, -0.5)))
    recorder = ScoreRecorder()
    recorder.add_advantages([item])
    recorder.record_pass([item], computed(-1.0, -2.0))
    scores = recorder.scores_of(item.sample)
    assert scores is not None and scores.learner_logprobs == (-0.25, -0.5)


def test_a_sample_that_was_not_learned_from_has_no_scores():
    unseen = item_of(1, 2.0)
    recorder = ScoreRecorder()
    assert recorder.scores_of(unseen.sample) is None
    recorder.add_advantages([unseen])
    scores = recorder.scores_of(unseen.sample)
    assert scores is not None and scores.learner_logprobs is None and scores.advantages == (2.0,)
