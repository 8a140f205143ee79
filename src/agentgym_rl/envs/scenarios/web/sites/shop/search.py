"""Haystack's search engine over SQLite's full-text index, in the episode's database (`Engine`).

Oscar lists its catalogue through Haystack. Here texts are in an FTS5 index over the table of
products, which triggers of the database keep current, however a product is changed; everything
else (price, rating, categories) is read from Oscar's own tables, so nothing can be stale.
`create_index` makes index and triggers, once, when the template is built.
"""

from __future__ import annotations

import re
from collections import Counter

from django.db import connection
from haystack import connections
from haystack.backends import BaseEngine, BaseSearchQuery
from haystack.models import SearchResult

from agentgym_rl.envs.scenarios.web.sites.fulltext import (
    Condition,
    ReadingBackend,
    matching,
    of_node,
    rows,
)

_INDEX = """
CREATE VIRTUAL TABLE shop_search USING fts5(
    title, upc, description,
    content='catalogue_product', content_rowid='id', tokenize='porter unicode61'
);
CREATE TRIGGER shop_search_insert AFTER INSERT ON catalogue_product BEGIN
    INSERT INTO shop_search(rowid, title, upc, description)
    VALUES (new.id, new.title, new.upc, new.description);
END;
CREATE TRIGGER shop_search_delete AFTER DELETE ON catalogue_product BEGIN
    INSERT INTO shop_search(shop_search, rowid, title, upc, description)
    VALUES ('delete', old.id, old.title, old.upc, old.description);
END;
CREATE TRIGGER shop_search_update AFTER UPDATE OF title, upc, description ON catalogue_product BEGIN
    INSERT INTO shop_search(shop_search, rowid, title, upc, description)
    VALUES ('delete', old.id, old.title, old.upc, old.description);
    INSERT INTO shop_search(rowid, title, upc, description)
    VALUES (new.id, new.title, new.upc, new.description);
END;
"""
_STOCK = """
COALESCE(
    (SELECT s.{column} FROM partner_stockrecord s WHERE s.product_id = p.id ORDER BY s.id LIMIT 1),
    (SELECT s.{column} FROM catalogue_product c JOIN partner_stockrecord s ON s.product_id = c.id
     WHERE c.parent_id = p.id ORDER BY s.id LIMIT 1))
"""
"""Of the first stock record, as Oscar has it; of the first child where a product has children."""
_COLUMNS = {
    "id": "p.id",
    "django_id": "p.id",
    "upc": "p.upc",
    "title": "p.title",
    "title_exact": "p.title COLLATE NOCASE",
    "product_class": (
        "(SELECT k.name FROM catalogue_productclass k WHERE k.id = p.product_class_id)"
    ),
    "price": _STOCK.format(column="price"),
    "num_in_stock": _STOCK.format(column="num_in_stock"),
    "rating": "CAST(p.rating AS INTEGER)",
    "date_created": "p.date_created",
    "date_updated": "p.date_updated",
    "is_public": "p.is_public",
    "structure": "p.structure",
}
"""Field of Oscar's index -> SQL."""
_CATEGORY = "EXISTS (SELECT 1 FROM catalogue_productcategory g WHERE g.product_id = p.id AND {})"
_COMPARED = {"exact": "=", "content": "=", "gt": ">", "gte": ">=", "lt": "<", "lte": "<="}
_NARROWED = re.compile(r"(\w+):\((.*)\)", re.DOTALL)
_RANGE = re.compile(r"\[(\S+) TO (\S+)\]")


def create_index() -> None:
    """Make the index of texts and its triggers, over the products that are there."""
    with connection.cursor() as cursor:
        cursor.connection.executescript(_INDEX)
        cursor.execute("INSERT INTO shop_search(shop_search) VALUES ('rebuild')")


class Backend(ReadingBackend):
    """Reads the tables."""

    def search(self, query_string, **kwargs):
        """Return what matches, as Haystack wants it: results, hits, facets."""
        found = query_string
        start = kwargs.get("start_offset") or 0
        length = max(0, (kwargs.get("end_offset") or start + 1000) - start)
        numbers = _numbers(found, kwargs.get("sort_by", ()), start, length)
        answer = {"results": self._results(numbers), "hits": _count(found)}
        if "facets" in kwargs or "query_facets" in kwargs:
            answer["facets"] = _facets(
                found, kwargs.get("facets", {}), kwargs.get("query_facets", ())
            )
        return answer

    def _results(self, numbers):
        """Return results with their products, which are read together."""
        unified = connections[self.connection_alias].get_unified_index()
        (model,) = unified.get_indexed_models()
        products = unified.get_index(model).read_queryset().in_bulk(numbers)
        results = []
        for number in numbers:
            result = SearchResult(model._meta.app_label, model._meta.model_name, number, 0)
            result._model, result._object = model, products.get(number)
            results.append(result)
        return results


class Query(BaseSearchQuery):
    """Makes a condition of Haystack's filters."""

    def build_query(self):
        found = of_node(self.query_filter, _of_filter)
        for text in self.narrow_queries:
            found = found & _narrowed(text)
        return found

    def get_count(self):
        """Count without a search, which would read products and facets once more."""
        if self._hit_count is None:
            self._hit_count = _count(self.build_query())
        return self._hit_count


class Engine(BaseEngine):
    """What HAYSTACK_CONNECTIONS names."""

    backend = Backend
    query = Query


def _of_filter(field: str, kind: str, value: object) -> Condition:
    if field in ("content", "text"):
        return matching(str(value), "shop_search", "p.id")
    several = tuple(value) if kind == "in" else (value,)  # type: ignore[arg-type] - a list there
    marks = ", ".join(["%s"] * len(several))
    if field == "category":
        return Condition(_CATEGORY.format(f"g.category_id IN ({marks})"), several)
    if field == "is_public":
        several = tuple(1 if one in (True, "true") else 0 for one in several)
    column = _COLUMNS[field]
    if kind == "in":
        return Condition(f"{column} IN ({marks})", several)
    return Condition(f"{column} {_COMPARED[kind]} %s", several)


def _numbers(found: Condition, sorted_by, start: int, length: int) -> list[int]:
    """Return the numbers of some products that match, in order."""
    ranks = "SELECT rowid AS id, 0 AS score FROM shop_search WHERE 0"
    values = found.values
    if found.words:
        ranks = """SELECT rowid AS id, bm25(shop_search, 10, 5, 1) AS score
            FROM shop_search WHERE shop_search MATCH %s"""
        values = (found.words, *values)
    order = ", ".join([*map(_ordered, sorted_by), "m.score", "p.date_created DESC", "p.id DESC"])
    found_rows = rows(
        f"""SELECT p.id FROM catalogue_product p LEFT JOIN ({ranks}) m ON m.id = p.id
            WHERE {found.sql} ORDER BY {order} LIMIT {int(length)} OFFSET {int(start)}""",
        values,
    )
    return [number for (number,) in found_rows]


def _ordered(field: str) -> str:
    column = _COLUMNS[field.lstrip("-")]
    return f"{column} {'DESC' if field.startswith('-') else 'ASC'} NULLS LAST"


def _narrowed(text: str) -> Condition:
    """Return the condition of a chosen facet, such as `rating:("4" OR "5")`."""
    match = _NARROWED.fullmatch(text)
    if match is None:
        return Condition("0")
    column = _COLUMNS[match[1].removesuffix("_exact") if match[1] != "title_exact" else match[1]]
    parts, values = [], []
    for choice in match[2].split(" OR "):
        if bounds := _RANGE.fullmatch(choice):
            condition = _between(column, bounds[1], bounds[2])
            parts.append(condition.sql)
            values += condition.values
        else:
            parts.append(f"CAST({column} AS TEXT) = %s")
            values.append(choice.strip('"'))
    return Condition(" OR ".join(parts), tuple(values))


def _between(column: str, low: str, high: str) -> Condition:
    bounds = [(">=", low), ("<=", high)]
    kept = [(sign, float(bound)) for sign, bound in bounds if bound != "*"]
    sql = " AND ".join([f"{column} IS NOT NULL", *(f"{column} {sign} %s" for sign, _ in kept)])
    return Condition(sql, tuple(bound for _, bound in kept))


def _count(found: Condition) -> int:
    sql = f"SELECT count(*) FROM catalogue_product p WHERE {found.sql}"
    ((number,),) = rows(sql, found.values)
    return number


def _facets(found: Condition, fields, queries) -> dict:
    """Return how many results have which value."""
    names = list(dict.fromkeys(field.removesuffix("_exact") for field in (*fields, *dict(queries))))
    columns = ", ".join(_COLUMNS[name] for name in names)
    sql = f"SELECT {columns} FROM catalogue_product p WHERE {found.sql}"
    products = rows(sql, found.values)
    by_name = {
        name: [row[place] for row in products if row[place] is not None]
        for place, name in enumerate(names)
    }
    counts, asked = {}, {}
    for field in fields:
        name = field.removesuffix("_exact")
        counts[name] = sorted(Counter(by_name[name]).items(), key=lambda pair: (-pair[1], pair[0]))
    for field, query in queries:
        name = field.removesuffix("_exact")
        if bounds := _RANGE.fullmatch(query):
            low, high = (float(bound.replace("*", "inf")) for bound in bounds.groups())
            asked[f"{name}:{query}"] = sum(low <= value <= high for value in by_name[name])
    return {"fields": counts, "dates": {}, "queries": asked}
