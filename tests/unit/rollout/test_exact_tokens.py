"""The record of an episode holds exactly what was prompted and sampled, whatever was sampled."""

from __future__ import annotations

import itertools
from dataclasses import dataclass

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from agentgym_rl.rollout.handler import RolloutHandler
from agentgym_rl.types import Completion, Sample, SegmentKind
from chat_families import FAMILIES, Family, family

quick = settings(max_examples=25)
families = pytest.mark.parametrize("name", FAMILIES)


@dataclass(frozen=True)
class Turn:
    """One sampled reply, its reward, and the observation that follows unless it is the last."""

    completion: Completion
    reward: float
    observation: str


@dataclass(frozen=True)
class Played:
    """A finished episode, with the pieces it was made of."""

    handler: RolloutHandler
    pieces: list[tuple[SegmentKind, list[int]]]
    turns: list[Turn]

    def ids_of(self, kind: SegmentKind) -> list[list[int]]:
        return [ids for piece_kind, ids in self.pieces if piece_kind is kind]


def texts() -> st.SearchStrategy[str]:
    """Any text, with spaces of all kinds and the markers of every family."""
    words = [word for name in FAMILIES for word in family(name).special_words]
    bits = st.sampled_from([*words, " ", "\n", "\t", "\u00a0", "user\n", "é", "日本", "🙂"])
    return st.lists(st.one_of(st.text(max_size=8), bits), max_size=5).map("".join)


@st.composite
def completions(draw: st.DrawFn, chat: Family) -> Completion:
    """Any ids, canonical or not, cut or ended by any of the stop tokens."""
    ids = st.integers(0, len(chat.tokenizer) - 1).filter(lambda token: token not in chat.stops)
    ending = draw(st.sampled_from([(), *((stop,) for stop in chat.stops)]))
    body = draw(st.lists(ids, min_size=0 if ending else 1, max_size=8))
    tokens = (*body, *ending)
    logprobs = draw(st.lists(st.floats(-20.0, -0.01), min_size=len(tokens), max_size=len(tokens)))
    version = draw(st.integers(0, 5))
    return Completion(tokens, tuple(logprobs), is_stopped=bool(ending), version=version)


@st.composite
def episodes(draw: st.DrawFn, chat: Family) -> Played:
    rewards = st.sampled_from([-1.0, 0.25, 0.5, 1.0])
    turns = draw(
        st.lists(st.builds(Turn, completions(chat), rewards, texts()), min_size=1, max_size=4)
    )
    return play(chat, draw(texts()), turns, ends_with_observation=draw(st.booleans()))


def play(
    chat: Family, prompt: str, turns: list[Turn], *, ends_with_observation: bool = False
) -> Played:
    """Run an episode through the handler as rollout/episode.py does."""
    handler, renderer = RolloutHandler(), chat.renderer
    pieces = [(SegmentKind.PROMPT, renderer.prompt(prompt))]
    handler.append_prompt(pieces[0][1], prompt)
    for index, turn in enumerate(turns):
        text = renderer.decode_reply(turn.completion.token_ids)
        pieces.append((SegmentKind.ACTION, list(turn.completion.token_ids)))
        handler.append_reply(turn.completion, text)
        handler.add_reward(turn.reward)
        if index + 1 < len(turns) or ends_with_observation:
            ids = renderer.turn(turn.observation, reply_ids=handler.token_ids)
            pieces.append((SegmentKind.OBSERVATION, ids))
            handler.append_observation(ids, turn.observation)
    return Played(handler, pieces, turns)


def cut_completion(*ids: int) -> Completion:
    return Completion(ids, (-1.0,) * len(ids), is_stopped=False, version=0)


@families
def test_token_ids_are_what_was_prompted_and_sampled(name: str):
    chat = family(name)

    @quick
    @given(episodes(chat))
    def check(played: Played) -> None:
        handler = played.handler
        assert handler.token_ids == [token for _, ids in played.pieces for token in ids]
        assert len(handler) == len(handler.token_ids)
        attended = len(handler.sample().token_ids)
        unseen = len(handler) - attended
        assert handler.attention_mask == [1] * attended + [0] * unseen
        assert handler.position_ids == list(range(len(handler)))
        assert handler.sequence_ids == [0] * len(handler)

    check()


@families
def test_loss_mask_and_logprobs_are_on_sampled_tokens_alone(name: str):
    chat = family(name)

    @quick
    @given(episodes(chat))
    def check(played: Played) -> None:
        handler = played.handler
        assert handler.loss_mask == [
            int(kind is SegmentKind.ACTION) for kind, ids in played.pieces for _ in ids
        ]
        sampled = [turn.completion for turn in played.turns]
        masked = [
            (token, logprob)
            for token, logprob, mask in zip(
                handler.token_ids, handler.logprobs, handler.loss_mask, strict=True
            )
            if mask
        ]
        assert masked == [
            pair for c in sampled for pair in zip(c.token_ids, c.logprobs, strict=True)
        ]
        elsewhere = zip(handler.logprobs, handler.loss_mask, strict=True)
        assert all(logprob == 0.0 for logprob, mask in elsewhere if not mask)

    check()


@families
def test_segments_tile_the_episode_and_name_its_rounds(name: str):
    chat = family(name)

    @quick
    @given(episodes(chat))
    def check(played: Played) -> None:
        segments = played.handler.segments
        assert [segment.kind for segment in segments] == [kind for kind, _ in played.pieces]
        assert segments[0].start == 0 and segments[-1].end == len(played.handler)
        assert all(a.end == b.start for a, b in itertools.pairwise(segments))
        for kind in (SegmentKind.ACTION, SegmentKind.OBSERVATION):
            rounds = [segment.round_index for segment in segments if segment.kind is kind]
            assert rounds == list(range(len(rounds)))

    check()


@families
def test_every_reward_is_on_the_last_action_token_of_its_round(name: str):
    chat = family(name)

    @quick
    @given(episodes(chat))
    def check(played: Played) -> None:
        expected = [0.0] * len(played.handler)
        actions = [s for s in played.handler.segments if s.kind is SegmentKind.ACTION]
        for segment, turn in zip(actions, played.turns, strict=True):
            expected[segment.end - 1] = turn.reward
        assert played.handler.token_rewards == expected

    check()


@families
def test_sample_is_the_episode_up_to_the_last_sampled_token(name: str):
    chat = family(name)

    @quick
    @given(episodes(chat))
    def check(played: Played) -> None:
        handler, last = played.handler, played.turns[-1].completion
        end = max(s.end for s in handler.segments if s.kind is SegmentKind.ACTION)
        assert handler.sample() == Sample(
            token_ids=tuple(handler.token_ids[:end]),
            loss_mask=tuple(handler.loss_mask[:end]),
            logprobs=tuple(handler.logprobs[:end]),
            rewards=tuple(handler.token_rewards[:end]),
            segments=tuple(s for s in handler.segments if s.end <= end),
            version=last.version,
        )
        assert handler.sample().token_ids[-len(last.token_ids) :] == last.token_ids
        assert handler.sample().loss_mask[-1] == 1
        assert sum(handler.sample().rewards) == sum(handler.token_rewards)

    check()


@families
def test_only_the_policy_or_a_following_observation_closes_a_reply(name: str):
    chat = family(name)

    @quick
    @given(episodes(chat))
    def check(played: Played) -> None:
        replies = [turn.completion.token_ids for turn in played.turns]
        assert played.ids_of(SegmentKind.ACTION) == [list(reply) for reply in replies]
        # The last reply may have no observation after it: then nothing closes it.
        for reply, observation in zip(
            replies, played.ids_of(SegmentKind.OBSERVATION), strict=False
        ):
            is_closed_by_policy = reply[-1] == chat.end_of_turn
            assert (observation[0] == chat.end_of_turn) is not is_closed_by_policy

    check()


@families
def test_observations_hold_the_special_tokens_of_the_template_and_no_others(name: str):
    chat = family(name)
    special = set(chat.tokenizer.all_special_ids)
    harmless = chat.renderer.turn("harmless", reply_ids=[chat.end_of_turn])
    expected = [token for token in harmless if token in special]

    @quick
    @given(episodes(chat))
    def check(played: Played) -> None:
        for turn, ids in zip(played.turns, played.ids_of(SegmentKind.OBSERVATION), strict=False):
            found = [token for token in ids if token in special]
            closing = (
                [] if turn.completion.token_ids[-1] == chat.end_of_turn else [chat.end_of_turn]
            )
            assert found == closing + expected

    check()


@families
def test_a_reply_cut_at_the_end_of_an_episode_stays_open(name: str):
    chat = family(name)
    played = play(chat, "Go.", [Turn(cut_completion(7, 8), 1.0, "Wall.")])
    prompt = chat.renderer.prompt("Go.")
    assert played.handler.token_ids == [*prompt, 7, 8]
    assert played.handler.loss_mask == [0] * len(prompt) + [1, 1]
    assert played.handler.sample().token_ids == (*prompt, 7, 8)


@families
def test_a_reply_cut_in_mid_episode_is_closed_outside_the_trained_part(name: str):
    chat = family(name)
    turns = [Turn(cut_completion(7, 8), 0.25, "Wall."), Turn(cut_completion(9), 1.0, "")]
    played = play(chat, "Go.", turns)
    prompt = chat.renderer.prompt("Go.")
    closed = chat.renderer.turn("Wall.", reply_ids=[chat.end_of_turn])
    assert played.handler.token_ids == [*prompt, 7, 8, chat.end_of_turn, *closed, 9]
    assert played.handler.loss_mask == [0] * len(prompt) + [1, 1] + [0] * (1 + len(closed)) + [1]
    assert played.handler.token_rewards == (
        [0.0] * len(prompt) + [0.0, 0.25] + [0.0] * (1 + len(closed)) + [1.0]
    )


@families
def test_a_reply_that_is_not_learned_keeps_its_tokens_but_not_its_mask(name: str):
    chat = family(name)
    handler = RolloutHandler()
    handler.append_prompt(chat.renderer.prompt("Go."), "Go.")
    start = len(handler)
    handler.append_reply(cut_completion(7, 8), "", is_learned=False)
    assert handler.token_ids[start:] == [7, 8]
    assert handler.loss_mask == [0] * len(handler)
    assert len(handler.sample().token_ids) == len(handler)


def test_parts_out_of_turn_are_refused():
    handler = RolloutHandler()
    with pytest.raises(AssertionError, match="a reply follows a prompt"):
        handler.append_reply(cut_completion(7), "")
    handler.append_prompt([1, 2], "Go.")
    with pytest.raises(AssertionError, match="the prompt comes first"):
        handler.append_prompt([1, 2], "Go.")
    with pytest.raises(AssertionError, match="an observation follows a reply"):
        handler.append_observation([3], "Wall.")
    with pytest.raises(AssertionError, match="a reward belongs to the reply"):
        handler.add_reward(1.0)
    handler.append_reply(cut_completion(7), "")
    with pytest.raises(AssertionError, match="a reply follows"):
        handler.append_reply(cut_completion(7), "")


def test_an_episode_without_replies_has_an_empty_sample():
    handler = RolloutHandler()
    handler.append_prompt([1, 2], "Go.")
    assert handler.sample() == Sample((), (), (), (), (), 0)


def test_a_new_sequence_has_masks_positions_and_a_sample_of_its_own():
    handler = RolloutHandler()
    handler.append_prompt([5, 8], "Go.")
    handler.append_reply(cut_completion(31, 2), "left")
    handler.add_reward(0.25)
    handler.append_observation([9], "Wall.")
    handler.begin_sequence(try_index=1)
    handler.append_prompt([7], "Go.", is_repeated=True)
    handler.append_reply(cut_completion(31, 2), "left", is_learned=False)
    handler.append_observation([9], "Wall.")
    handler.append_reply(cut_completion(40), "right", round_index=1)
    handler.add_reward(1.0)
    assert handler.token_ids == [5, 8, 31, 2, 9, 7, 31, 2, 9, 40]
    assert handler.loss_mask == [0, 0, 1, 1, 0, 0, 0, 0, 0, 1]
    assert handler.attention_mask == [1, 1, 1, 1, 0, 1, 1, 1, 1, 1]
    assert handler.position_ids == [0, 1, 2, 3, 4, 0, 1, 2, 3, 4]
    assert handler.sequence_ids == [0] * 5 + [1] * 5
    assert [message.content for message in handler.messages] == [
        *("Go.", "left", "Wall.", "Wall.", "right")
    ]
    first, second = handler.samples()
    assert (first.token_ids, first.rewards, first.try_index) == ((5, 8, 31, 2), (0, 0, 0, 0.25), 0)
    assert (second.token_ids, second.try_index) == ((7, 31, 2, 9, 40), 1)
    assert second == handler.sample()
    assert [segment.round_index for segment in second.segments] == [0, 0, 0, 1]
    handler.drop_rewards(try_index=0)
    handler.take_reward_back(1.0)
    assert handler.token_rewards == [0.0] * 10
