"""What the back office looks after: offers, vouchers, pages, alerts (`seed_office`)."""

from __future__ import annotations

import random
from datetime import timedelta

from django.contrib.auth import get_user_model
from django.contrib.flatpages.models import FlatPage
from oscar.apps.catalogue.models import Category, Product
from oscar.apps.customer.models import ProductAlert
from oscar.apps.offer.models import Benefit, Condition, ConditionalOffer, Range
from oscar.apps.partner.models import StockAlert, StockRecord
from oscar.apps.voucher.models import Voucher

from agentgym_rl.envs.scenarios.web.projects import NOW
from agentgym_rl.envs.scenarios.web.sites.shop.seed_catalogue import LOW_STOCK

_RANGES = (
    ("Camping gear", "Camping"), ("Cookware", "Cookware"), ("Desk and paper", "Paper"),
    ("Audio", "Audio"), ("Garden", "Garden"), ("Soft furnishings", "Textiles"),
)  # fmt: skip
_OFFERS = (
    ("Camping week", "Camping gear", 10, 3, -5, 16), ("Sound sale", "Audio", 15, 2, -30, -2),
    ("Garden spring", "Garden", 20, 2, -80, -50), ("Paper month", "Desk and paper", 5, 4, -12, 18),
    ("Warm home", "Soft furnishings", 12, 2, -200, -140),
    ("Kitchen days", "Cookware", 8, 2, 10, 40),
)  # fmt: skip
"""Name, range, per cent, least items, first and last day from now."""
_VOUCHERS = (
    ("Welcome", "WELCOME10", 10, "Once per customer", -300, 300),
    ("Newsletter", "NEWS5", 5, "Multi-use", -120, 120),
    ("Summer", "SUMMER15", 15, "Single use", -10, 70),
    ("Winter", "WINTER20", 20, "Multi-use", -200, -120),
    ("Press", "PRESS25", 25, "Single use", -60, 200),
    ("Students", "STUDENT12", 12, "Once per customer", -250, 100),
    ("Birthday", "BIRTHDAY7", 7, "Single use", -90, 270),
    ("Loyalty", "LOYAL18", 18, "Once per customer", -30, 330),
    ("Spring", "SPRING10", 10, "Multi-use", -100, -20),
    ("Friends", "FRIEND8", 8, "Multi-use", -15, 60),
    ("Local", "LEEDS10", 10, "Once per customer", -45, 45),
    ("Apology", "SORRY30", 30, "Single use", -5, 25),
)
_PAGES = (
    ("/delivery/", "Delivery", "Orders over £25 are sent free of charge. Standard delivery takes "
     "3 to 5 working days; parcels leave our warehouse in Leeds every weekday at 4 pm."),
    ("/returns/", "Returns", "You can return anything within 30 days. Refunds are paid within 7 "
     "days of the parcel reaching us."),
    ("/about/", "About us", "Harbour & Hill was founded in 2009 by Ruth and Daniel Hill. We are "
     "42 people today and sell goods from 16 brands."),
    ("/contact/", "Contact", "Our customer service is open from 9 am to 5 pm on weekdays. Call "
     "0113 496 0200 or write to help@harbourhill.example."),
    ("/gift-cards/", "Gift cards", "Gift cards are valid for 24 months and can be used in several "
     "orders."),
    ("/careers/", "Careers", "We are looking for a warehouse lead in Leeds and a buyer for "
     "kitchen goods."),
    ("/privacy/", "Privacy", "We keep your data for 6 years after your last order and never sell "
     "them."),
    ("/guarantee/", "Guarantee", "Electronics are covered for 3 years, everything else for 2."),
    ("/stores/", "Stores", "Visit us in Leeds, York and Bristol. The York store closes at 6 pm."),
    ("/wholesale/", "Wholesale", "Trade customers get 12% off orders of at least £500."),
    ("/sizes/", "Size guide", "Our clothing runs true to size. Size M fits a chest of 97 cm."),
    ("/recycling/", "Recycling", "Bring back old textiles and get a £5 voucher."),
)  # fmt: skip


def seed_office() -> None:
    draws = random.Random("office")
    everything = Range.objects.create(name="All products", includes_all_products=True)
    ranges = {"All products": everything}
    for name, category in _RANGES:
        ranges[name] = Range.objects.create(name=name, is_public=True)
        ranges[name].included_categories.add(Category.objects.get(name=category, depth=2))
    for name, of, percent, least, first, last in _OFFERS:
        ConditionalOffer.objects.create(
            name=name,
            description=f"{percent}% off when you buy {least} or more.",
            offer_type=ConditionalOffer.SITE,
            condition=Condition.objects.create(range=ranges[of], type="Count", value=least),
            benefit=Benefit.objects.create(range=ranges[of], type="Percentage", value=percent),
            start_datetime=NOW + timedelta(days=first),
            end_datetime=NOW + timedelta(days=last),
        )
    _seed_vouchers(everything)
    for url, title, text in _PAGES:
        page = FlatPage.objects.create(url=url, title=title, content=f"<p>{text}</p>")
        page.sites.add(1)
    _seed_alerts(draws)


def _seed_vouchers(everything: Range) -> None:
    usages = {str(label).split(" (")[0]: key for key, label in Voucher.USAGE_CHOICES}
    keys = {"Single use": "Single use", "Multi-use": "Multi-use", "Once per customer": None}
    keys["Once per customer"] = next(key for key in usages.values() if "customer" in key.lower())
    for name, code, percent, usage, first, last in _VOUCHERS:
        voucher = Voucher.objects.create(
            name=name,
            code=code,
            usage=keys[usage],
            start_datetime=NOW + timedelta(days=first),
            end_datetime=NOW + timedelta(days=last),
        )
        offer = ConditionalOffer.objects.create(
            name=f"Offer for voucher '{name}'",
            offer_type=ConditionalOffer.VOUCHER,
            condition=Condition.objects.create(range=everything, type="Count", value=1),
            benefit=Benefit.objects.create(range=everything, type="Percentage", value=percent),
        )
        voucher.offers.add(offer)


def _seed_alerts(draws: random.Random) -> None:
    low = StockRecord.objects.filter(num_in_stock__lt=LOW_STOCK).order_by("id")
    StockAlert.objects.bulk_create(
        [StockAlert(stockrecord=record, threshold=LOW_STOCK) for record in low]
    )
    sold_out = list(
        Product.objects.filter(structure="standalone", stockrecords__num_in_stock=0).order_by("id")
    )
    customers = list(get_user_model().objects.filter(is_staff=False).order_by("id")[:200])
    ProductAlert.objects.bulk_create(
        [
            ProductAlert(product=draws.choice(sold_out), user=user, status=ProductAlert.ACTIVE)
            for user in draws.sample(customers, 40)
        ]
    )
