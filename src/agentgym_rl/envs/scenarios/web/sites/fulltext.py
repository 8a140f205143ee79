"""Haystack's filters as conditions of SQL over a table of FTS5: what search engines here share.

An engine of a project keeps its index in the episode's own database (triggers keep it current), so
that a search sees what the episode has written, and nothing of another.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass

from django.db import connection
from haystack.backends import BaseSearchBackend, SearchNode

_WORD = re.compile(r"(-?)(?:\"([^\"]+)\"|([^\s\"]+))")


@dataclass(frozen=True, slots=True)
class Condition:
    """A condition of SQL with its values."""

    sql: str = "1"
    values: tuple[object, ...] = ()
    words: str = ""
    """What is searched for, in the words of FTS5, for the order by rank."""

    def __and__(self, other: Condition) -> Condition:
        both = f"({self.sql}) AND ({other.sql})"
        return Condition(both, self.values + other.values, self.words or other.words)


class ReadingBackend(BaseSearchBackend):
    """Has nothing to write, because triggers do it."""

    def update(self, index, iterable, commit=True):
        pass

    def remove(self, obj_or_string, commit=True):
        pass

    def clear(self, models=None, commit=True):
        pass

    def more_like_this(self, model_instance, additional_query_string=None, **kwargs):
        return {"results": [], "hits": 0}


def of_node(node: SearchNode, of_filter: Callable[[str, str, object], Condition]) -> Condition:
    """Return the condition of a tree of filters.

    Args:
        node: The tree.
        of_filter: Makes a condition of a field, a kind of comparison such as "in", and a value.
    """
    parts = []
    for child in node.children:
        if isinstance(child, SearchNode):
            parts.append(of_node(child, of_filter))
        else:
            field, kind = node.split_expression(child[0])
            parts.append(of_filter(field, kind, getattr(child[1], "query_string", child[1])))
    if not parts:
        return Condition()
    sql = f" {node.connector} ".join(f"({part.sql})" for part in parts)
    values = tuple(value for part in parts for value in part.values)
    words = next((part.words for part in parts if part.words), "")
    return Condition(f"NOT ({sql})" if node.negated else sql, values, words)


def matching(asked: str, table: str, number: str) -> Condition:
    """Return the condition that a row's texts have all words of a search.

    Args:
        asked: What a person typed: words, "phrases", and -unwanted ones.
        table: Of FTS5.
        number: The column that is the table's rowid.
    """
    wanted, unwanted = [], []
    for minus, phrase, word in _WORD.findall(asked):
        text = (phrase or word).replace('"', " ").strip()
        if re.search(r"\w", text):
            (unwanted if minus else wanted).append(f'"{text}"')
    condition = Condition()
    for words, sign in ((" ".join(wanted), "IN"), (" OR ".join(unwanted), "NOT IN")):
        if words:
            inside = f"SELECT rowid FROM {table} WHERE {table} MATCH %s"
            rank_by = words if sign == "IN" else ""
            condition &= Condition(f"{number} {sign} ({inside})", (words,), rank_by)
    return condition if wanted or unwanted else Condition("0")


def rows(sql: str, values: tuple[object, ...] = ()) -> list:
    """Return what a query finds in the episode's database."""
    with connection.cursor() as cursor:
        cursor.execute(sql, values)
        return cursor.fetchall()
