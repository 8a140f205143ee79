"""Fills the shop: `seed`."""

from __future__ import annotations

from django.contrib.auth import get_user_model
from django.contrib.auth.hashers import make_password
from django.contrib.sites.models import Site
from oscar.apps.address.models import Country
from oscar.apps.catalogue.models import Category, Product, ProductClass
from oscar.apps.partner.models import Partner, StockRecord

from agentgym_rl.envs.scenarios.web.sites.shop.search import create_index


def seed() -> None:
    Site.objects.update_or_create(id=1, defaults={"domain": "shop.test", "name": "Shop"})
    Country.objects.create(
        iso_3166_1_a2="GB",
        iso_3166_1_a3="GBR",
        printable_name="United Kingdom",
        name="United Kingdom",
        is_shipping_country=True,
    )
    kind = ProductClass.objects.create(name="Kitchenware")
    mugs = Category.add_root(name="Mugs")
    partner = Partner.objects.create(name="Northgate")
    for number in range(1, 61):
        product = Product.objects.create(
            title=f"Stoneware mug {number}",
            upc=f"MUG-{number:04}",
            product_class=kind,
            description="<p>A mug.</p>",
        )
        product.categories.add(mugs)
        StockRecord.objects.create(
            product=product,
            partner=partner,
            partner_sku=f"N{number}",
            price=5 + number,
            num_in_stock=number % 7,
        )
    password = make_password("harbour", "salt")
    get_user_model().objects.create(
        username="ann@example.com",
        email="ann@example.com",
        password=password,
        first_name="Ann",
    )
    get_user_model().objects.create(
        username="staff@example.com",
        email="staff@example.com",
        password=password,
        is_staff=True,
        is_superuser=True,
    )
    create_index()
