"""Templates of web tasks, as many threads read them."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor

from agentgym_rl.envs.scenarios.web.templates import Seeded


def test_episodes_that_begin_at_once_read_the_seeded_databases():
    def read(number: int) -> int:
        sql = "SELECT title FROM catalogue_product WHERE id > ? ORDER BY id"
        return sum(len(Seeded().rows("shop", sql, number)) > 100 for _ in range(20))

    with ThreadPoolExecutor(8) as pool:
        assert sum(pool.map(read, range(16))) == 320
