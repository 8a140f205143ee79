"""Categories, products, prices, stock and pictures: `seed_catalogue`. What is sold is in
catalogue.toml."""

from __future__ import annotations

import itertools
import random
import tomllib
from collections.abc import Mapping
from datetime import timedelta
from decimal import Decimal
from pathlib import Path

from django.conf import settings
from django.db import connection
from oscar.apps.catalogue.models import (
    Category,
    Product,
    ProductAttribute,
    ProductAttributeValue,
    ProductCategory,
    ProductClass,
    ProductImage,
)
from oscar.apps.partner.models import Partner, StockRecord
from oscar.core.utils import slugify

from agentgym_rl.envs.scenarios.web.projects import NOW
from agentgym_rl.envs.scenarios.web.sites.shop.drawing import draw

_DATA = tomllib.loads(Path(__file__).with_name("catalogue.toml").read_text("utf-8"))
_PER_TYPE = 41
_PER_TYPE_WITH_VARIANTS = 14
_ENDINGS = ("0.00", "0.50", "0.95", "0.99")
_PICTURES = "images/products"
_SHARE_SOLD_OUT, _SHARE_LOW = 0.04, 0.06
LOW_STOCK = 10


def seed_catalogue() -> None:
    draws = random.Random("catalogue")
    kinds = {name: ProductClass.objects.create(name=name) for name in _DATA["kinds"]}
    size = ProductAttribute.objects.create(
        product_class=kinds["Clothing"], name="Size", code="size", type="text", required=False
    )
    leaves = _seed_categories()
    partners = [Partner.objects.create(name=name) for name in _DATA["partners"]]
    _draw_pictures()
    products, places, variants = [], [], []
    for one in _DATA["types"]:
        for product, picture in _products_of(one, kinds[one["kind"]], draws):
            products.append(product)
            places.append((one, leaves[one["plural"]], picture))
    Product.objects.bulk_create(products)
    for product, (one, _, _) in zip(products, places, strict=True):
        for name in one.get("variants", ()):
            variants.append(_variant(product, name))
    Product.objects.bulk_create(variants)
    ProductAttributeValue.objects.bulk_create(
        [
            ProductAttributeValue(product=each, attribute=size, value_text=each.title.split()[-1])
            for each in variants
        ]
    )
    _seed_places(products, places)
    priced = [(product, one) for product, (one, _, _) in zip(products, places, strict=True)]
    _seed_stock([pair for pair in priced if "variants" not in pair[1]], variants, partners, draws)
    _spread_dates(draws)


def _seed_categories() -> dict[str, Category]:
    """Make three layers of categories; return the last one by name."""
    layers: dict[tuple[str, ...], Category] = {}
    leaves = {}
    for one in _DATA["types"]:
        top, middle = one["path"]
        if (top,) not in layers:
            layers[(top,)] = Category.add_root(name=top, description=f"Everything for {top}.")
        if (top, middle) not in layers:
            parent = Category.objects.get(pk=layers[(top,)].pk)
            layers[(top, middle)] = parent.add_child(name=middle)
        parent = Category.objects.get(pk=layers[(top, middle)].pk)
        leaves[one["plural"]] = parent.add_child(name=one["plural"])
    return leaves


def _draw_pictures() -> None:
    folder = Path(settings.MEDIA_ROOT) / _PICTURES
    folder.mkdir(parents=True, exist_ok=True)
    for shape in sorted({one["shape"] for one in _DATA["types"]}):
        for colour in _DATA["colours"]:
            draw(shape, tuple(colour["rgb"]), folder / _picture(shape, colour["name"]))
    draw("box", (190, 190, 190), Path(settings.MEDIA_ROOT) / settings.OSCAR_MISSING_IMAGE_URL)


def _picture(shape: str, colour: str) -> str:
    return f"{shape}-{colour.lower()}.jpg"


def _products_of(one: Mapping, kind: ProductClass, draws: random.Random):
    """Yield products of a type, each with its picture; no two have the same title."""
    choices = list(itertools.product(_DATA["brands"], one["materials"], one["sizes"]))
    number = _PER_TYPE_WITH_VARIANTS if "variants" in one else _PER_TYPE
    for brand, material, size in sorted(draws.sample(choices, min(number, len(choices)))):
        colour = draws.choice(_DATA["colours"])["name"]
        words = {"noun": one["noun"].lower(), "brand": brand}
        texts = [
            draws.choice(_DATA["opening"]["texts"]).format(**words),
            _DATA["materials"][material],
            f"Size: {size}. Colour: {colour.lower()}.",
            draws.choice(_DATA["opening"]["closing"]),
        ]
        title = f"{brand} {material} {one['noun']} {size}, {colour}"
        product = Product(
            structure=Product.PARENT if "variants" in one else Product.STANDALONE,
            title=title,
            slug=slugify(title),
            upc=f"{draws.randrange(10**11, 10**12)}",
            description=f"<p>{' '.join(texts)}</p>",
            product_class=kind,
        )
        yield product, _picture(one["shape"], colour)


def _variant(parent: Product, name: str) -> Product:
    title = f"{parent.title}, size {name}"
    return Product(
        structure=Product.CHILD,
        parent=parent,
        title=title,
        slug=slugify(title),
        upc=f"{parent.upc}-{name}",
    )


def _seed_places(products: list, places: list) -> None:
    """Put products into categories and give them pictures."""
    pairs = list(zip(products, places, strict=True))
    ProductCategory.objects.bulk_create(
        [ProductCategory(product=product, category=leaf) for product, (_, leaf, _) in pairs]
    )
    ProductImage.objects.bulk_create(
        [
            ProductImage(product=product, original=f"{_PICTURES}/{picture}", display_order=0)
            for product, (_, _, picture) in pairs
        ]
    )


def _seed_stock(priced: list, variants: list, partners: list, draws: random.Random) -> None:
    """Give everything that can be bought a price and a stock; sizes of one thing cost the same."""
    by_noun = {one["noun"]: one for one in _DATA["types"]}
    records = []
    last: tuple[object, Decimal, Partner] | None = None
    for product, one in [*priced, *((each, None) for each in variants)]:
        if one is None:
            noun = next(noun for noun in by_noun if f" {noun} " in f"{product.parent.title} ")
            one = by_noun[noun]
        if last is None or product.parent_id is None or last[0] != product.parent_id:
            price = draws.randrange(*one["price"]) + Decimal(draws.choice(_ENDINGS))
            last = (product.parent_id, price, draws.choice(partners))
        _, price, partner = last
        records.append(
            StockRecord(
                product=product,
                partner=partner,
                partner_sku=f"{str(partner.name)[:2].upper()}-{product.upc}",
                price_currency="GBP",
                price=price,
                num_in_stock=_stock(draws),
                num_allocated=0,
                low_stock_threshold=LOW_STOCK,
            )
        )
    StockRecord.objects.bulk_create(records)


def _stock(draws: random.Random) -> int:
    chance = draws.random()
    if chance < _SHARE_SOLD_OUT:
        return 0
    if chance < _SHARE_SOLD_OUT + _SHARE_LOW:
        return draws.randrange(1, LOW_STOCK)
    return draws.randrange(LOW_STOCK, 180)


def _spread_dates(draws: random.Random) -> None:
    """Let products have come over the years before; the field is filled by Django itself."""
    with connection.cursor() as cursor:
        rows = []
        for (number,) in cursor.execute("SELECT id FROM catalogue_product ORDER BY id").fetchall():
            made = NOW - timedelta(minutes=draws.randrange(60 * 24 * 40, 60 * 24 * 900))
            rows.append((made.replace(tzinfo=None), made.replace(tzinfo=None), number))
        cursor.executemany(
            "UPDATE catalogue_product SET date_created = %s, date_updated = %s WHERE id = %s", rows
        )
