"""Fills the shop, the same way every time: `seed`.

    seed_catalogue.py   categories, products, prices, stock, pictures
    seed_people.py      customers with addresses, and the staff
    seed_trade.py       orders, reviews, wish lists, and the records that follow from them
    seed_office.py      offers, vouchers, pages, alerts

Each part draws from a generator of its own, so that a change in one leaves the others alone.
"""

from __future__ import annotations

from agentgym_rl.envs.scenarios.web.sites.shop.search import create_index
from agentgym_rl.envs.scenarios.web.sites.shop.seed_catalogue import seed_catalogue
from agentgym_rl.envs.scenarios.web.sites.shop.seed_office import seed_office
from agentgym_rl.envs.scenarios.web.sites.shop.seed_people import seed_people
from agentgym_rl.envs.scenarios.web.sites.shop.seed_trade import seed_trade


def seed() -> None:
    """Fill all tables."""
    seed_catalogue()
    seed_people()
    seed_trade()
    seed_office()
    create_index()
