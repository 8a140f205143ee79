"""Preference learning: the losses by hand, their gradient, the pairs and what makes none."""

from __future__ import annotations

import json
import logging
import math
from dataclasses import replace
from pathlib import Path

import pytest
import torch

from agentgym_rl.config import DPOConfig, RunConfig, TrainingConfig
from agentgym_rl.errors import ConfigError, RunError
from agentgym_rl.models.chat import ChatRenderer
from agentgym_rl.models.forward import action_logprobs
from agentgym_rl.runs.episodes import read_episodes, write_episodes
from agentgym_rl.runs.folder import RunFolder
from agentgym_rl.training.data.conversations import Conversation, to_sample
from agentgym_rl.training.data.preferences import (
    Pair,
    PairSet,
    exact_sample,
    load_pairs,
    pair_up,
)
from agentgym_rl.training.dpo import preference_loss
from agentgym_rl.training.make import dpo_trainer
from agentgym_rl.training.run_parts import RunParts
from agentgym_rl.types import Episode, Message, Round, Sample, StopReason, Task
from chat_families import family, small_policy

BETA1 = 0.9
"""Of AdamW: after one update its first moment is (1 - BETA1) times the gradient."""


def make_sample(renderer: ChatRenderer, *texts: str) -> Sample:
    roles = ("user", "assistant") * (len(texts) // 2)
    messages = tuple(Message(role, text) for role, text in zip(roles, texts, strict=True))
    return to_sample(Conversation("", messages, tuple(r == "assistant" for r in roles)), renderer)


def make_episode(
    reward: float | None, *actions: str, index: int = 4, renderer: ChatRenderer | None = None
) -> Episode:
    texts = [text for action in actions or ("add 1",) for text in ("Count?", action)]
    roles = ("user", "assistant") * (len(texts) // 2)
    return Episode(
        task=Task("counting", "train", index),
        sample_index=0,
        stop_reason=StopReason.ENV_ERROR if reward is None else StopReason.MAX_ROUNDS,
        reward=reward,
        success=False,
        rounds=tuple(Round(action, action, "Count?", 0.0, True) for action in texts[1::2]),
        messages=tuple(Message(role, text) for role, text in zip(roles, texts, strict=True)),
        samples=(make_sample(renderer or family("qwen").renderer, *texts),),
        seconds=0.5,
    )


def make_config(data: str = "unused", **changes: object) -> RunConfig:
    training = TrainingConfig(steps=2, lr=1e-3, max_grad_norm=1e9, weight_decay=0.0)
    return RunConfig(algorithm=DPOConfig(data=data, **changes), training=training)


def make_pairs(renderer: ChatRenderer) -> list[Pair]:
    """Two pairs of episodes of different lengths."""
    return [
        Pair(
            make_sample(renderer, "Go.", "add 1", "Count: 1.", "add 2"),
            make_sample(renderer, "Go.", "add 3"),
            "a",
        ),
        Pair(
            make_sample(renderer, "Stop.", "add 2"),
            make_sample(renderer, "Stop.", "1", "no", "0"),
            "b",
        ),
    ]


def write_run(folder: Path, *episodes: Episode, phase: str = "train") -> Path:
    write_episodes(RunFolder(folder).episodes, [episodes], phase=phase, step=1)
    return folder


def test_dpo_loss_by_hand():
    # beta * difference = 0, 1 and -2; -log(1 / (1 + e^-x)) = log(1 + e^-x)
    loss = preference_loss(torch.tensor([0.0, 2.0, -4.0]), beta=0.5)
    assert loss.tolist() == pytest.approx([math.log(2), 0.3132617, 2.1269280])


@pytest.mark.parametrize("length_normalized", [False, True])
@pytest.mark.parametrize(("tokens_per_batch", "sft_weight"), [(64, 0.0), (4096, 0.0), (64, 0.7)])
def test_an_update_has_the_gradient_of_the_pairs_loss_however_it_is_split(
    length_normalized: bool,
    tokens_per_batch: int,
    sft_weight: float,
    tmp_path: Path,
):
    policy = small_policy("qwen3")
    pairs = make_pairs(policy.renderer)
    config = make_config(length_normalized=length_normalized, beta=0.3, sft_weight=sft_weight)
    training = config.training.model_copy(update={"tokens_per_batch": tokens_per_batch})
    config = config.model_copy(update={"training": training})
    trainer = dpo_trainer(RunParts(config, policy, RunFolder(tmp_path)), PairSet(pairs, 0))
    torch.manual_seed(0)
    with torch.no_grad():
        for parameter in policy.model.parameters():
            parameter += 0.05 * torch.randn_like(parameter)
    reference = small_policy("qwen3").model
    differences = []
    for pair in pairs:
        ratios = []
        for sample in (pair.chosen, pair.rejected):
            now = action_logprobs(policy.model, [sample], temperature=1.0).logprobs_A
            with torch.no_grad():
                before = action_logprobs(reference, [sample], temperature=1.0).logprobs_A
            ratios.append((now - before).mean() if length_normalized else (now - before).sum())
        differences.append(ratios[0] - ratios[1])
    differences_P = torch.stack(differences)
    loss = preference_loss(differences_P, beta=0.3).mean()
    imitation = [
        -action_logprobs(policy.model, [pair.chosen], temperature=1.0).logprobs_A.mean()
        for pair in pairs
    ]
    (loss + sft_weight * torch.stack(imitation).mean()).backward()
    expected = {name: p.grad.clone() for name, p in policy.model.named_parameters()}
    policy.model.zero_grad()
    parameters = dict(policy.model.named_parameters())
    metrics = trainer.update(trainer._items.take(1, len(pairs)))
    state = trainer._learner._optimizer.state
    for name, grad in expected.items():
        found = state[parameters[name]]["exp_avg"] / (1 - BETA1)
        assert (found - grad).norm() <= 1e-4 * grad.norm() + 1e-7, name
    assert metrics["train/loss"] == pytest.approx(float(loss.detach()), rel=1e-4)
    assert metrics["train/margin"] == pytest.approx(
        0.3 * float(differences_P.detach().mean()), rel=1e-3
    )
    assert metrics["train/accuracy"] == float((differences_P > 0).float().mean())
    assert metrics["train/kl"] > 0.0


async def test_training_prefers_the_chosen_and_starts_at_the_reference(tmp_path: Path):
    policy = small_policy("qwen3")
    pair = Pair(
        make_sample(policy.renderer, "Go.", "add 1"), make_sample(policy.renderer, "Go.", "2"), ""
    )
    run = RunFolder(tmp_path / "run")
    run.create("")
    config = make_config()
    config = config.model_copy(update={"training": TrainingConfig(steps=4, lr=1e-2)})
    await dpo_trainer(RunParts(config, policy, run), PairSet([pair], 3)).train()
    lines = run.read_metrics()
    assert lines[0]["train/loss"] == pytest.approx(math.log(2))
    assert lines[0]["train/margin"] == 0.0
    assert abs(lines[0]["train/kl"]) < 1e-6 < lines[-1]["train/kl"]
    assert lines[-1]["train/margin"] > 0 and lines[-1]["train/accuracy"] == 1.0
    assert lines[0]["train/pairs_left_out"] == 3.0


async def test_the_reference_is_scored_once_and_read_by_a_run_that_goes_on(tmp_path: Path):
    policy, run = small_policy("qwen3"), RunFolder(tmp_path / "run")
    data = PairSet(make_pairs(policy.renderer), 0)
    run.create("")
    first = dpo_trainer(RunParts(make_config(), policy, run), data)
    known = {chosen.sample: chosen.scores for chosen, _ in first._items.take(1, 2)}
    await first.train()
    second = dpo_trainer(RunParts(make_config(), policy, run), data)
    assert second.restore() == 2
    for chosen, _ in second._items.take(1, 2):
        assert chosen.scores == known[chosen.sample]
    with pytest.raises(RunError, match=r"the data is not what the run in .* began with"):
        dpo_trainer(RunParts(make_config(), policy, run), PairSet(data.pairs[:1], 0))
    run.reference_scores.write_bytes(b"half a file")
    with pytest.raises(RunError, match=r"reference_scores\.pt cannot be read"):
        dpo_trainer(RunParts(make_config(), policy, run), data)


def test_observation_tokens_get_no_weight():
    sample = make_sample(family("qwen").renderer, "Go.", "add 1", "Count: 1.", "add 2")
    replies = sum(len(family("qwen").renderer.reply(text)) for text in ("add 1", "add 2"))
    assert sample.num_action_tokens == replies < len(sample.token_ids)


def test_the_best_is_paired_with_the_worst():
    rewards = [0.2, None, 1.0, 0.0, 0.9, 0.15]
    episodes = [make_episode(reward) for reward in rewards]
    found = [(a.reward, b.reward) for a, b in pair_up(episodes, min_margin=0.1, max_pairs=9)]
    assert found == [(1.0, 0.0), (0.9, 0.15)], "0.2 is left without a partner"
    assert len(pair_up(episodes, min_margin=0.1, max_pairs=1)) == 1
    assert len(pair_up(episodes, min_margin=0.8, max_pairs=9)) == 1
    assert pair_up([make_episode(0.5), make_episode(0.5)], min_margin=0.01, max_pairs=9) == []
    assert pair_up([make_episode(1.0)], min_margin=0.01, max_pairs=9) == []


def test_pairs_are_of_one_task_and_of_training_episodes(tmp_path: Path):
    policy = small_policy("qwen3")
    write_run(
        tmp_path,
        make_episode(1.0, "add 1", renderer=policy.renderer),
        make_episode(0.0, "add 2", renderer=policy.renderer),
        make_episode(0.0, index=6, renderer=policy.renderer),
    )
    write_run(tmp_path, make_episode(1.0, index=6, renderer=policy.renderer), phase="eval")
    found = load_pairs(DPOConfig(data=str(tmp_path)), policy, max_tokens=512)
    assert [pair.origin for pair in found.pairs] == ["counting/4"]
    assert found.pairs[0].chosen == make_sample(policy.renderer, "Count?", "add 1")


def test_stored_episodes_read_back_as_they_were_written(tmp_path: Path):
    episodes = [make_episode(1.0, "add 1", "add 2"), make_episode(None)]
    part = write_episodes(tmp_path, [episodes], phase="train", step=3)
    assert read_episodes(part) == episodes
    (tmp_path / "bad.parquet").write_text("no")
    with pytest.raises(RunError, match=r"bad\.parquet holds no episodes"):
        read_episodes(tmp_path / "bad.parquet")


def test_tokens_are_those_that_were_sampled_unless_the_tokenizer_is_another():
    renderer = family("qwen").renderer
    episode = make_episode(1.0, renderer=renderer)
    # The reply was cut by the token limit: to render it anew would add an end that nobody sampled.
    cut = replace(
        episode.samples[0],
        token_ids=episode.samples[0].token_ids[:-1],
        loss_mask=episode.samples[0].loss_mask[:-1],
    )
    episode = replace(episode, samples=(cut,))
    assert exact_sample(episode, renderer) is cut
    other = family("llama3").renderer
    assert exact_sample(episode, other) == make_sample(other, "Count?", "add 1")


def test_pairs_beyond_the_context_are_counted_and_named(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
):
    policy = small_policy("qwen3")
    write_run(
        tmp_path,
        make_episode(1.0, "add 1", renderer=policy.renderer),
        make_episode(0.0, "add 2", renderer=policy.renderer),
        make_episode(1.0, "add 1 " * 90, index=6, renderer=policy.renderer),
        make_episode(0.0, "add 1", index=6, renderer=policy.renderer),
    )
    with caplog.at_level(logging.WARNING):
        found = load_pairs(DPOConfig(data=str(tmp_path)), policy, max_tokens=100)
    assert (len(found.pairs), found.num_left_out) == (1, 1)
    assert "counting/6: pair left out" in caplog.text
    with pytest.raises(ConfigError, match=r"none of 2 pairs .* 2 are longer than 10 tokens"):
        load_pairs(DPOConfig(data=str(tmp_path)), policy, max_tokens=10)


def test_episodes_that_make_no_pair_are_told_with_the_margin(tmp_path: Path):
    policy = small_policy("qwen3")
    episodes = [make_episode(r, "add 1", renderer=policy.renderer) for r in (1.0, 0.0)]
    config = DPOConfig(data=str(write_run(tmp_path, *episodes)), min_margin=1.5)
    with pytest.raises(ConfigError, match=r"make no pair: .*algorithm\.min_margin=1\.5 .*lower it"):
        load_pairs(config, policy, max_tokens=512)


def test_a_reward_that_is_no_number_is_an_error_that_names_its_row(tmp_path: Path):
    write_run(tmp_path, make_episode(1.0), make_episode(float("nan")))
    with pytest.raises(ConfigError, match=r"train-000001\.parquet, row 2: the reward is nan"):
        load_pairs(DPOConfig(data=str(tmp_path)), small_policy("qwen3"), max_tokens=512)


@pytest.mark.parametrize(
    ("changes", "told"),
    [
        ({"samples": ()}, "an episode of 0 samples"),
        ({"samples": make_episode(1.0).samples * 2}, "an episode of 2 samples"),
        ({"messages": ()}, "the episode has no messages"),
        ({"reward": float("inf")}, "the reward is inf"),
        ({"reward": float("-inf")}, "the reward is -inf"),
    ],
)
def test_a_damaged_episode_is_an_error_that_names_its_row(
    changes: dict[str, object], told: str, tmp_path: Path
):
    write_run(tmp_path, make_episode(0.0), replace(make_episode(1.0), **changes))
    with pytest.raises(ConfigError, match=rf"train-000001\.parquet, row 2: {told}"):
        load_pairs(DPOConfig(data=str(tmp_path)), small_policy("qwen3"), max_tokens=512)


@pytest.mark.parametrize("changes", [{"loss_mask": (0, 0)}, {"segments": ()}, {"logprobs": (0.0,)}])
def test_a_damaged_sample_is_an_error_that_names_its_row(
    changes: dict[str, object], tmp_path: Path
):
    episode = make_episode(1.0)
    damaged = replace(episode, samples=(replace(episode.samples[0], **changes),))
    write_run(tmp_path, make_episode(0.0), damaged)
    with pytest.raises(ConfigError, match="row 2: the sample is damaged"):
        load_pairs(DPOConfig(data=str(tmp_path)), small_policy("qwen3"), max_tokens=512)


def test_half_a_file_of_episodes_is_an_error_that_names_it(tmp_path: Path):
    write_run(tmp_path, make_episode(0.0), make_episode(1.0))
    part = tmp_path / "episodes" / "train-000001.parquet"
    whole = part.read_bytes()
    part.write_bytes(whole[: len(whole) // 2])
    with pytest.raises(RunError, match=r"train-000001\.parquet holds no episodes"):
        load_pairs(DPOConfig(data=str(tmp_path)), small_policy("qwen3"), max_tokens=512)


def test_a_folder_without_episodes_is_an_error(tmp_path: Path):
    with pytest.raises(ConfigError, match=r"has no episodes/train-\*\.parquet"):
        load_pairs(DPOConfig(data=str(tmp_path)), small_policy("qwen3"), max_tokens=512)


def side(*texts: str) -> list[dict[str, str]]:
    roles = ("user", "assistant") * (len(texts) // 2)
    return [{"role": r, "content": t} for r, t in zip(roles, texts, strict=True)]


def test_pairs_are_read_from_json_lines(tmp_path: Path):
    policy, path = small_policy("qwen3"), tmp_path / "pairs.jsonl"
    row = {"chosen": side("Go.", "add 1"), "rejected": side("Go.", "add 2", "No.", "add 3")}
    path.write_text(json.dumps(row))
    (pair,) = load_pairs(DPOConfig(data=str(path)), policy, max_tokens=512).pairs
    assert pair.chosen == make_sample(policy.renderer, "Go.", "add 1")
    assert pair.rejected == make_sample(policy.renderer, "Go.", "add 2", "No.", "add 3")


def test_pairs_that_teach_nothing_are_left_out_named_and_counted(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
):
    policy, path = small_policy("qwen3"), tmp_path / "pairs.jsonl"
    good = {"chosen": side("Go.", "add 1"), "rejected": side("Go.", "add 2")}
    same = {"chosen": side("Go.", "add 1"), "rejected": side("Go.", "add 1")}
    path.write_text("\n".join(map(json.dumps, [good, same, good])))
    with caplog.at_level(logging.WARNING):
        found = load_pairs(DPOConfig(data=str(path)), policy, max_tokens=512)
    assert (len(found.pairs), found.num_left_out) == (1, 2)
    assert "pairs.jsonl, line 2: pair left out: its two episodes are equal" in caplog.text
    assert f"line 3: pair left out: it repeats the pair of {path}, line 1" in caplog.text
    path.write_text(json.dumps(same))
    with pytest.raises(ConfigError, match=r"none of 1 pairs .* 1 have two equal episodes"):
        load_pairs(DPOConfig(data=str(path)), policy, max_tokens=512)


def test_an_empty_file_and_a_missing_one_are_told_as_pairs(tmp_path: Path):
    policy, path = small_policy("qwen3"), tmp_path / "pairs.jsonl"
    with pytest.raises(ConfigError, match=r"pairs\.jsonl does not exist; it takes the folder of a"):
        load_pairs(DPOConfig(data=str(path)), policy, max_tokens=512)
    path.write_text("\n")
    with pytest.raises(ConfigError, match=r"pairs\.jsonl is empty; every line is a pair with"):
        load_pairs(DPOConfig(data=str(path)), policy, max_tokens=512)
    path.write_bytes(b"\xff\xfe\xff")
    with pytest.raises(ConfigError, match="cannot read pairs from"):
        load_pairs(DPOConfig(data=str(path)), policy, max_tokens=512)


def test_an_empty_reply_may_be_rejected(tmp_path: Path):
    policy, path = small_policy("qwen3"), tmp_path / "pairs.jsonl"
    path.write_text(json.dumps({"chosen": side("Go.", "add 1"), "rejected": side("Go.", "")}))
    assert len(load_pairs(DPOConfig(data=str(path)), policy, max_tokens=512).pairs) == 1


def test_pairs_with_other_system_messages_are_of_other_tasks(tmp_path: Path):
    policy, path = small_policy("qwen3"), tmp_path / "pairs.jsonl"
    sides = [
        [{"role": "system", "content": text}, *side("Go.", action)]
        for text, action in (("Be brief.", "add 1"), ("Be brief.", "add 2"), ("Be long.", "add 2"))
    ]
    path.write_text(json.dumps({"chosen": sides[0], "rejected": sides[1]}))
    (pair,) = load_pairs(DPOConfig(data=str(path)), policy, max_tokens=512).pairs
    start = pair.chosen.segments[0].end
    assert pair.chosen.token_ids[:start] == pair.rejected.token_ids[:start]
    path.write_text(json.dumps({"chosen": sides[0], "rejected": sides[2]}))
    with pytest.raises(ConfigError, match=r"pairs\.jsonl, line 1: .* begin with the same message"):
        load_pairs(DPOConfig(data=str(path)), policy, max_tokens=512)


@pytest.mark.parametrize(
    ("row", "complaint"),
    [
        ({"chosen": side("Go.", "a")}, "`rejected` is missing"),
        ({"chosen": side("Go.", "a"), "rejected": []}, "`rejected`: `messages` must be a list"),
        ({"chosen": None, "rejected": side("Go.", "a")}, "`chosen`: `messages` must be a list"),
        (
            {"chosen": side("Go.", "a")[:1], "rejected": side("Go.", "a")},
            "`chosen`: a conversation",
        ),
        (None, "a pair is an object, got NoneType"),
        ({"chosen": side("Go.", "a"), "rejected": side("Stop.", "b")}, "the same message"),
        ([1], "a pair is an object, got list"),
    ],
)
def test_a_bad_pair_is_named_with_its_line(row: object, complaint: str, tmp_path: Path):
    path = tmp_path / "pairs.jsonl"
    good = {"chosen": side("Go.", "a"), "rejected": side("Go.", "b")}
    path.write_text(f"{json.dumps(good)}\n{json.dumps(row)}\n")
    with pytest.raises(ConfigError, match=r"pairs\.jsonl, line 2: ") as caught:
        load_pairs(DPOConfig(data=str(path)), small_policy("qwen3"), max_tokens=512)
    assert complaint in str(caught.value)
