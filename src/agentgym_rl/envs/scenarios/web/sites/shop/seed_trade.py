"""Orders, reviews, wish lists, and the records that follow from them: `seed_trade`.

Everything agrees: an order is placed after its customer joined, its total is the sum of its lines,
what was bought is what was reviewed, most of the time, ratings are the means of approved reviews,
and what is not shipped yet is allocated from the stock.
"""

from __future__ import annotations

import random
from collections import Counter, defaultdict
from datetime import datetime, timedelta
from decimal import Decimal

from django.contrib.auth import get_user_model
from django.db import connection
from oscar.apps.analytics.models import ProductRecord, UserRecord
from oscar.apps.basket.models import Basket
from oscar.apps.catalogue.models import Product
from oscar.apps.catalogue.reviews.models import ProductReview
from oscar.apps.order.models import Line, LinePrice, Order, OrderNote, ShippingAddress
from oscar.apps.partner.models import StockRecord
from oscar.apps.wishlists.models import Line as WishListLine
from oscar.apps.wishlists.models import WishList

from agentgym_rl.envs.scenarios.web.projects import NOW
from agentgym_rl.envs.scenarios.web.sites.shop.seed_people import PEOPLE, STAFF

_NUM_ORDERS = 1640
_NUM_REVIEWS = 4200
_NUM_WISH_LISTS = 160
_DAYS = 700
_OPEN = ("Pending", "Being processed")
_WISH_LISTS = ("Birthday", "New flat", "Garden", "Christmas ideas", "For the office", "Camping")
_NOTES = (
    "Customer asked for delivery before noon.",
    "Gift wrap requested.",
    "Called the customer about the address.",
    "Parcel returned by the courier, sent again.",
    "Leave with the neighbour at number 12.",
)


def seed_trade() -> None:
    draws = random.Random("trade")
    records = list(StockRecord.objects.select_related("product", "partner").order_by("id"))
    draws.shuffle(records)
    popularity = [1 / (place + 25) for place in range(len(records))]
    customers = list(get_user_model().objects.filter(is_staff=False).order_by("id"))
    lines = _seed_orders(customers, records, popularity, draws)
    _seed_allocations(lines)
    _seed_notes(draws)
    reviews = _seed_reviews(customers, records, popularity, lines, draws)
    _seed_ratings(reviews)
    _seed_records(lines, records, customers, draws)
    _seed_wish_lists(customers, records, draws)


def _seed_orders(
    customers: list, records: list, popularity: list, draws: random.Random
) -> list[Line]:
    """Place orders, oldest first, as Oscar numbers them: by their baskets."""
    addresses = {}
    for customer in customers:
        addresses[customer.id] = list(customer.addresses.order_by("id"))
    times = sorted(NOW - timedelta(days=_DAYS) * draws.random() ** 1.4 for _ in range(_NUM_ORDERS))
    buyers = [_buyer(customers, when, draws) for when in times]
    baskets = Basket.objects.bulk_create(
        [
            Basket(owner=buyer, status=Basket.SUBMITTED, date_submitted=when)
            for buyer, when in zip(buyers, times, strict=True)
        ]
    )
    places = ShippingAddress.objects.bulk_create(
        [_shipping_address(draws.choice(addresses[buyer.id])) for buyer in buyers]
    )
    orders, lines = [], []
    for basket, buyer, when, place in zip(baskets, buyers, times, places, strict=True):
        order = Order(
            number=str(100000 + basket.id),
            site_id=1,
            basket=basket,
            user=buyer,
            currency="GBP",
            shipping_address=place,
            shipping_method="Free shipping",
            shipping_code="free-shipping",
            shipping_incl_tax=0,
            shipping_excl_tax=0,
            status=_status((NOW - when).days, draws),
            date_placed=when,
        )
        chosen = draws.choices(records, popularity, k=draws.choice((1, 1, 1, 2, 2, 2, 3, 3, 4, 5)))
        unique = list(dict.fromkeys(chosen))
        made = [_line(order, record, draws.choice((1, 1, 1, 1, 2, 2, 3))) for record in unique]
        total = sum((line.line_price_incl_tax for line in made), Decimal(0))
        order.total_incl_tax = order.total_excl_tax = total
        orders.append(order)
        lines += made
    Order.objects.bulk_create(orders)
    Line.objects.bulk_create(lines)
    LinePrice.objects.bulk_create(
        [
            LinePrice(
                order=line.order,
                line=line,
                quantity=line.quantity,
                price_incl_tax=line.unit_price_incl_tax,
                price_excl_tax=line.unit_price_excl_tax,
            )
            for line in lines
        ]
    )
    return lines


def _buyer(customers: list, when: datetime, draws: random.Random):
    """Return somebody who had joined by then; few buy much and many buy little."""
    while True:
        buyer = customers[int(len(customers) * draws.random() ** 1.6)]
        if buyer.date_joined < when:
            return buyer
        if customers[0].date_joined > when and draws.random() < 0.01:
            buyer.date_joined = when - timedelta(hours=1)
            buyer.save()


def _shipping_address(address) -> ShippingAddress:
    copied = ("first_name", "last_name", "line1", "line4", "postcode", "country", "phone_number")
    made = ShippingAddress(**{name: getattr(address, name) for name in copied})
    made.search_text = made.join_fields(made.search_fields, separator=" ")
    return made


def _status(days: int, draws: random.Random) -> str:
    chance = draws.random()
    if days <= 2:
        return "Pending"
    if days <= 8:
        return "Being processed" if chance < 0.6 else "Pending" if chance < 0.7 else "Shipped"
    if days <= 20:
        return "Shipped" if chance < 0.5 else "Delivered" if chance < 0.92 else "Cancelled"
    return "Delivered" if chance < 0.88 else "Returned" if chance < 0.94 else "Cancelled"


def _line(order: Order, record: StockRecord, quantity: int) -> Line:
    total = record.price * quantity
    is_open = order.status in _OPEN
    return Line(
        order=order,
        partner=record.partner,
        partner_name=record.partner.name,
        partner_sku=record.partner_sku,
        stockrecord=record,
        product=record.product,
        title=record.product.title,
        upc=record.product.upc,
        quantity=quantity,
        line_price_incl_tax=total,
        line_price_excl_tax=total,
        line_price_before_discounts_incl_tax=total,
        line_price_before_discounts_excl_tax=total,
        unit_price_incl_tax=record.price,
        unit_price_excl_tax=record.price,
        status=order.status,
        num_allocated=quantity if is_open else 0,
    )


def _seed_allocations(lines: list[Line]) -> None:
    """Allocate stock to what is not shipped yet; there is enough of it."""
    allocated = Counter()
    for line in lines:
        allocated[line.stockrecord_id] += line.num_allocated
    changed = []
    for record in StockRecord.objects.filter(id__in=[key for key in allocated if allocated[key]]):
        record.num_allocated = allocated[record.id]
        record.num_in_stock = max(record.num_in_stock, record.num_allocated)
        changed.append(record)
    StockRecord.objects.bulk_update(changed, ["num_allocated", "num_in_stock"])


def _seed_notes(draws: random.Random) -> None:
    staff = get_user_model().objects.get(username=STAFF)
    orders = list(Order.objects.order_by("id"))
    OrderNote.objects.bulk_create(
        [
            OrderNote(order=order, user=staff, note_type="Info", message=draws.choice(_NOTES))
            for order in draws.sample(orders, 120)
        ]
    )
    _set_dates(
        "order_ordernote",
        "SELECT n.id, o.date_placed FROM order_ordernote n JOIN order_order o ON o.id = n.order_id",
        timedelta(hours=3),
    )


def _set_dates(table: str, query: str, later: timedelta) -> None:
    """Set dates that Django fills by itself: some time after those of a query."""
    with connection.cursor() as cursor:
        rows = [
            (when.replace(tzinfo=None) + later, number)
            for number, when in cursor.execute(query).fetchall()
        ]
        cursor.executemany(f"UPDATE {table} SET date_created = %s WHERE id = %s", rows)


def _seed_reviews(
    customers: list, records: list, popularity: list, lines: list[Line], draws: random.Random
) -> list[ProductReview]:
    """Write reviews: of what was delivered first, then of what was bought elsewhere."""
    quality = {record.id: draws.gauss(4.05, 0.55) for record in records}
    wanted = [
        (line.order.user, line.stockrecord, line.order.date_placed)
        for line in lines
        if line.order.status in ("Delivered", "Returned") and draws.random() < 0.75
    ]
    while len(wanted) < 2 * _NUM_REVIEWS:
        (record,) = draws.choices(records, popularity)
        customer = draws.choice(customers)
        wanted.append((customer, record, customer.date_joined))
    reviews, dates, known = [], [], set()
    for customer, record, after in wanted:
        product = record.product.parent if record.product.is_child else record.product
        if (customer.id, product.id) in known or len(reviews) == _NUM_REVIEWS:
            continue
        known.add((customer.id, product.id))
        when = after + (NOW - after) * draws.uniform(0.02, 0.9)
        score = min(5, max(1, round(draws.gauss(quality[record.id], 0.9))))
        words = PEOPLE["reviews"][str(score)]
        reviews.append(
            ProductReview(
                product=product,
                user=customer,
                score=score,
                title=draws.choice(words["titles"]),
                body=draws.choice(words["texts"]),
                status=_review_status((NOW - when).days, draws),
            )
        )
        dates.append(when)
    ProductReview.objects.bulk_create(reviews)
    with connection.cursor() as cursor:
        rows = [
            (when.replace(tzinfo=None), review.id)
            for when, review in zip(dates, reviews, strict=True)
        ]
        cursor.executemany("UPDATE reviews_productreview SET date_created=%s WHERE id=%s", rows)
    return reviews


def _review_status(days: int, draws: random.Random) -> int:
    if days < 45 and draws.random() < 0.5:
        return ProductReview.FOR_MODERATION
    return ProductReview.REJECTED if draws.random() < 0.02 else ProductReview.APPROVED


def _seed_ratings(reviews: list[ProductReview]) -> None:
    scores = defaultdict(list)
    for review in reviews:
        if review.status == ProductReview.APPROVED:
            scores[review.product_id].append(review.score)
    products = list(Product.objects.filter(id__in=scores))
    for product in products:
        product.rating = sum(scores[product.id]) / len(scores[product.id])
    Product.objects.bulk_update(products, ["rating"])


def _seed_records(lines: list[Line], records: list, customers: list, draws: random.Random) -> None:
    """Write down what Oscar's reports count."""
    bought, by_user = Counter(), defaultdict(list)
    for line in lines:
        bought[line.product_id] += line.quantity
        by_user[line.order.user_id].append(line)
    ProductRecord.objects.bulk_create(
        [
            ProductRecord(
                product=record.product,
                num_purchases=bought[record.product_id],
                num_basket_additions=bought[record.product_id] + draws.randrange(6),
                num_views=4 * bought[record.product_id] + draws.randrange(40),
            )
            for record in records
        ]
    )
    made = []
    for customer in customers:
        mine = by_user[customer.id]
        orders = {line.order.number: line.order for line in mine}
        made.append(
            UserRecord(
                user=customer,
                num_product_views=3 * len(mine) + draws.randrange(30),
                num_basket_additions=len(mine) + draws.randrange(4),
                num_orders=len(orders),
                num_order_lines=len(mine),
                num_order_items=sum(line.quantity for line in mine),
                total_spent=sum((order.total_incl_tax for order in orders.values()), Decimal(0)),
                date_last_order=max((order.date_placed for order in orders.values()), default=None),
            )
        )
    UserRecord.objects.bulk_create(made)


def _seed_wish_lists(customers: list, records: list, draws: random.Random) -> None:
    owners = draws.sample(customers, _NUM_WISH_LISTS)
    made = [
        WishList(owner=owner, name=draws.choice(_WISH_LISTS), key=f"w{place:05}")
        for place, owner in enumerate(owners)
    ]
    WishList.objects.bulk_create(made)
    lines = []
    for wish_list in made:
        for record in draws.sample(records, draws.randrange(1, 6)):
            product = record.product.parent if record.product.is_child else record.product
            lines.append(
                WishListLine(
                    wishlist=wish_list,
                    product=product,
                    title=product.title,
                    quantity=draws.choice((1, 1, 1, 2)),
                )
            )
    unique = {(line.wishlist_id, line.product_id): line for line in lines}
    WishListLine.objects.bulk_create(unique.values())
