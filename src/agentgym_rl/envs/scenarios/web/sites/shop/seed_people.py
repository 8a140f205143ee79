"""Customers with their addresses, and the staff: `seed_people`. Their names are in people.toml."""

from __future__ import annotations

import random
import tomllib
from datetime import timedelta
from pathlib import Path

from django.contrib.auth import get_user_model
from django.contrib.auth.hashers import make_password
from django.contrib.sites.models import Site
from oscar.apps.address.models import Country, UserAddress

from agentgym_rl.envs.scenarios.web.projects import NOW

PEOPLE = tomllib.loads(Path(__file__).with_name("people.toml").read_text("utf-8"))
PASSWORD = "harbour-2024"
"""Of everybody."""
STAFF = "manager@harbourhill.example"
_NUM_CUSTOMERS = 520
_COUNTRIES = (("GB", "GBR", "United Kingdom"), ("IE", "IRL", "Ireland"), ("FR", "FRA", "France"))


def seed_people() -> None:
    draws = random.Random("people")
    Site.objects.update_or_create(id=1, defaults={"domain": "shop.test", "name": "Harbour & Hill"})
    countries = [
        Country(
            iso_3166_1_a2=two,
            iso_3166_1_a3=three,
            printable_name=name,
            name=name,
            display_order=len(_COUNTRIES) - place,
            is_shipping_country=True,
        )
        for place, (two, three, name) in enumerate(_COUNTRIES)
    ]
    Country.objects.bulk_create(countries)
    password = make_password(PASSWORD, "harbour")
    names = [(first, last) for first in PEOPLE["first"] for last in PEOPLE["last"]]
    customers = [
        get_user_model()(
            username=f"{first}.{last}@example.com".lower(),
            email=f"{first}.{last}@example.com".lower(),
            first_name=first,
            last_name=last,
            password=password,
            date_joined=NOW - timedelta(minutes=draws.randrange(60 * 24 * 20, 60 * 24 * 860)),
        )
        for first, last in draws.sample(names, _NUM_CUSTOMERS)
    ]
    get_user_model().objects.bulk_create(customers)
    get_user_model().objects.create(
        username=STAFF,
        email=STAFF,
        first_name="Robin",
        last_name="Manager",
        password=password,
        is_staff=True,
        is_superuser=True,
        date_joined=NOW - timedelta(days=900),
    )
    _seed_addresses(customers, countries[0], draws)


def _seed_addresses(customers: list, country: Country, draws: random.Random) -> None:
    addresses = []
    for customer in customers:
        for place in range(draws.choice((1, 1, 1, 2))):
            city, code = draws.choice(PEOPLE["cities"])
            address = UserAddress(
                user=customer,
                first_name=customer.first_name,
                last_name=customer.last_name,
                line1=f"{draws.randrange(1, 180)} {draws.choice(PEOPLE['streets'])}",
                line4=city,
                postcode=f"{code}{draws.randrange(1, 20)} {draws.randrange(1, 9)}"
                f"{draws.choice('ABDEFGHJLN')}{draws.choice('PQRSTUWXYZ')}",
                country=country,
                phone_number=f"+44113496{draws.randrange(1000):04}",
                is_default_for_shipping=place == 0,
                is_default_for_billing=place == 0,
            )
            address.hash = address.generate_hash()
            address.search_text = address.join_fields(address.search_fields, separator=" ")
            addresses.append(address)
    UserAddress.objects.bulk_create(addresses)
