"""Passages and the row formats they are read from."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from agentgym_rl.retrieval.passages import Passage, passage_from_row


def test_search_r1_row():
    row = {"id": "0", "contents": '"Aaron"\nAaron is a prophet.\nAnd a priest.'}
    assert passage_from_row(row) == Passage("0", "Aaron", "Aaron is a prophet.\nAnd a priest.")


def test_quotes_inside_a_title_stay():
    row = {"id": 7, "contents": '"The "Great" One"\nText'}
    assert passage_from_row(row) == Passage("7", 'The "Great" One', "Text")
    assert passage_from_row({"id": 7, "contents": 'A "quote"\nText'}).title == 'A "quote"'


def test_rows_with_title_and_text():
    assert passage_from_row({"_id": "a", "title": "T\n t", "text": "x"}) == Passage("a", "T t", "x")
    assert passage_from_row({"id": "a", "title": None, "text": "x"}) == Passage("a", "", "x")


def test_contents_of_one_line_have_no_title():
    assert passage_from_row({"id": "a", "contents": "just text"}) == Passage("a", "", "just text")


def test_a_row_without_an_id_takes_the_fallback():
    assert passage_from_row({"text": "x"}, fallback_id="12").id == "12"
    assert passage_from_row({"id": 0, "text": "x"}, fallback_id="12").id == "0"
    with pytest.raises(ValueError, match="no `id`"):
        passage_from_row({"id": True, "text": "x"})


def test_a_row_without_text_is_refused():
    with pytest.raises(ValueError, match="'5' has the fields"):
        passage_from_row({"id": "5", "title": "T"})
    with pytest.raises(ValueError, match="as strings"):
        passage_from_row({"id": "5", "contents": 3})


@given(
    title=st.text().map(lambda text: " ".join(text.split())),
    text=st.text(),
)
def test_contents_are_read_back(title: str, text: str):
    passage = Passage("1", title, text)
    assert passage_from_row({"id": "1", "contents": passage.contents}) == passage
