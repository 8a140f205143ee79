"""Lists of episodes: pages of rows, and the values that filters offer."""

from __future__ import annotations

from dataclasses import asdict

from agentgym_rl.ui.filters import EpisodePage, condition
from agentgym_rl.ui.index import EpisodeIndex
from agentgym_rl.ui.parts import MAX_ROWS

COLUMNS = (
    "phase", "step", "env", "split", "task_index", "category", "level", "group", "sample_index",
    "success", "reward", "num_rounds", "num_tokens", "num_sampled_tokens", "num_invalid",
    "num_repeats", "stop_reason", "seconds", "error", "goal", "last_action",
)  # fmt: skip
_ROW = "key, part, " + ", ".join(f'"{name}"' for name in COLUMNS)


def list_episodes(index: EpisodeIndex, page: EpisodePage) -> dict[str, object]:
    """Return one page of the episodes that a filter leaves, and how many it leaves in all."""
    state = index.refresh()
    where, parameters = condition(page, index.holding)
    total = index.ask(f"SELECT count(*) AS n FROM episodes WHERE {where}", parameters)
    # Keys first: texts of rows that a page leaves out are not carried through the sort.
    keys = index.ask(
        f"SELECT key FROM episodes WHERE {where} ORDER BY {page.sort} {page.order} "
        'NULLS LAST, step DESC, phase, "group", sample_index, key LIMIT ? OFFSET ?',
        [*parameters, page.limit, page.offset],
    )
    places = {row["key"]: place for place, row in enumerate(keys)}
    rows = index.ask(
        f"SELECT {_ROW} FROM episodes WHERE key IN (SELECT unnest(?::BIGINT[]))", [list(places)]
    )
    rows.sort(key=lambda row: places[row["key"]])
    found = index.excerpts(page.text, list(places)) if page.text and places else {}
    return {
        "total": total[0]["n"],
        "rows": [{"excerpt": found.get(row["key"])} | named(index, dict(row)) for row in rows],
        "index": asdict(state),
        "problem": state.problem,
    }


def named(index: EpisodeIndex, row: dict[str, object]) -> dict[str, object]:
    """Return a row with the episode's id in place of its keys: "train-000012:3"."""
    key, part = row.pop("key"), row.pop("part")
    assert isinstance(key, int) and isinstance(part, int), "columns of the index"
    return {"episode": f"{index.stem(part)}:{key % MAX_ROWS}"} | row


def facets(index: EpisodeIndex) -> dict[str, object]:
    """Return the values that the episodes have, each list in its own order."""
    state = index.refresh()
    (row,) = index.ask(
        """
        SELECT count(*) AS num_episodes,
               list_sort(list(DISTINCT phase)) AS phases,
               list_sort(list(DISTINCT env)) AS envs,
               list_sort(list(DISTINCT category)) AS categories,
               list_sort(list(DISTINCT stop_reason)) AS stop_reasons,
               [min(step), max(step)] AS steps,
               [min(num_rounds), max(num_rounds)] AS rounds
        FROM episodes
        """
    )
    empty: list[object] = []
    lists = {name: empty if value is None else value for name, value in row.items()}
    return lists | {"index": asdict(state), "problem": state.problem}
