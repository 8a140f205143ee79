"""The recipe book of TextCraft: reading, merging, the rule against circles, depths, splits."""

import random
from collections import Counter
from dataclasses import FrozenInstanceError

import pytest

from agentgym_rl.envs.scenarios.textcraft.minecraft import (
    drop_reversals,
    load_book,
    merge_variants,
    name_kinds,
)
from agentgym_rl.envs.scenarios.textcraft.recipes import Recipe, Slot, build_book
from agentgym_rl.envs.scenarios.textcraft.splits import NUM_TEST_GOALS, family_of, split_of_goals


def recipe(output: str, makes: int, **counts: int) -> Recipe:
    slots = tuple(Slot(kind.replace("_", " "), (kind,), count) for kind, count in counts.items())
    return Recipe(output, makes, slots)


def texts_of(item: str) -> list[str]:
    return [recipe.text for recipe in load_book().recipes_of[item]]


def test_number_of_items_by_depth():
    book = load_book()
    assert len(book.recipes) == 694
    assert len(book.goals) == 652
    assert Counter(book.depths.values()) == {0: 132, 1: 171, 2: 321, 3: 136, 4: 24}


@pytest.mark.parametrize(
    ("item", "texts"),
    [
        ("stick", ["craft 1 stick using 2 bamboo", "craft 4 stick using 2 planks"]),
        ("chest", ["craft 1 chest using 8 planks"]),
        ("oak_planks", ["craft 4 oak planks using 1 oak logs"]),
        ("crimson_planks", ["craft 4 crimson planks using 1 crimson stems"]),
        ("torch", ["craft 4 torch using 1 coal or charcoal, 1 stick"]),
        ("ladder", ["craft 3 ladder using 7 stick"]),
        ("campfire", ["craft 1 campfire using 3 logs, 1 coal or charcoal, 3 stick"]),
        ("barrel", ["craft 1 barrel using 6 planks, 2 wooden slabs"]),
        ("painting", ["craft 1 painting using 1 wool, 8 stick"]),
        ("iron_nugget", ["craft 9 iron nugget using 1 iron ingot"]),
        ("iron_block", ["craft 1 iron block using 9 iron ingot"]),
        ("red_bed", ["craft 1 red bed using 3 planks, 3 red wool"]),
        ("red_wool", ["craft 1 red wool using 1 red dye, 1 white wool"]),
    ],
)
def test_recipes_known_from_the_game(item: str, texts: list[str]):
    assert texts_of(item) == texts


def test_depths_by_hand():
    depths = load_book().depths
    assert depths["oak_log"] == 0
    assert depths["oak_planks"] == 1  # a log
    assert depths["stick"] == 1  # bamboo
    assert depths["chest"] == 2  # planks
    assert depths["sandstone_slab"] == 2  # sandstone, though chiseled sandstone is made of slabs
    assert depths["chiseled_sandstone"] == 3
    assert depths["cyan_bed"] == 4  # cornflower, blue dye, cyan dye, cyan wool


def test_sets_are_named_after_no_item_and_hold_their_kinds():
    book = load_book()
    assert not book.generics.keys() & book.depths.keys()
    sizes = {name: len(kinds) for name, kinds in book.generics.items()}
    assert len(sizes) == 30
    assert sizes["planks"] == sizes["wooden_slabs"] == 9
    assert sizes["wool"] == 16
    assert sizes["logs"] == 36
    assert book.generics["coal_or_charcoal"] == ("coal", "charcoal")
    assert book.generics["oak_logs"][0] == "oak_log"


def test_name_of_an_unforeseen_set_lists_its_kinds():
    assert name_kinds(("a_x", "b", "c", "d")) == "a x or b or c or d"


def test_no_recipe_has_two_slots_for_one_kind():
    for recipe_ in load_book().recipes:
        kinds = [kind for slot in recipe_.slots for kind in slot.kinds]
        assert len(kinds) == len(set(kinds)), recipe_.text


def test_products_of_two_sets_merge_whatever_the_order():
    def variant(a: str, b: str) -> tuple[int, frozenset[tuple[frozenset[str], int]]]:
        return 1, frozenset({(frozenset({a}), 3), (frozenset({b}), 1)})

    variants = [variant(a, b) for a in "pqr" for b in "xy"]
    expected = {(1, frozenset({(frozenset("pqr"), 3), (frozenset("xy"), 1)}))}
    for seed in range(5):
        random.Random(seed).shuffle(variants)
        assert merge_variants(variants) == expected


def test_variants_with_other_counts_or_yields_stay_apart():
    one = (1, frozenset({(frozenset({"a"}), 1)}))
    two = (1, frozenset({(frozenset({"b"}), 2)}))
    three = (3, frozenset({(frozenset({"c"}), 1)}))
    assert merge_variants([one, two, three]) == {one, two, three}


def test_only_the_way_to_the_block_and_the_nugget_stays():
    recipes = [
        recipe("tin_block", 1, tin_ingot=9),
        recipe("tin_ingot", 9, tin_block=1),
        recipe("tin_ingot", 1, tin_nugget=9),
        recipe("tin_nugget", 9, tin_ingot=1),
        recipe("tin_cup", 1, tin_ingot=3),
    ]
    assert [r.output for r in drop_reversals(recipes)] == ["tin_block", "tin_nugget", "tin_cup"]


def test_book_does_not_depend_on_the_order_of_recipes():
    book = load_book()
    shuffled = list(book.recipes)
    random.Random(0).shuffle(shuffled)
    again = build_book(shuffled)
    assert again == book
    assert list(again.recipes_of) == list(book.recipes_of)


def test_book_refuses_items_that_can_never_be_made():
    with pytest.raises(ValueError, match="no way to make"):
        build_book([recipe("egg", 1, hen=1), recipe("hen", 1, egg=1)])


def test_book_cannot_be_changed():
    book = load_book()
    with pytest.raises(TypeError):
        book.depths["stick"] = 0  # type: ignore[index]  # the attempt is the test
    with pytest.raises(FrozenInstanceError):
        book.recipes[0].makes = 9  # type: ignore[misc]  # the attempt is the test


@pytest.mark.parametrize(
    ("ingredients", "makes"),
    [
        ({"oak_planks": 2}, 4),
        ({"birch_planks": 6}, 12),
        ({"bamboo": 4}, 2),
        ({"oak_planks": 3}, None),
        ({"oak_planks": 1, "birch_planks": 1}, None),
        ({"oak_log": 2}, None),
        ({}, None),
    ],
)
def test_sticks_need_two_planks_of_one_kind_or_two_bamboo(ingredients: dict, makes: int | None):
    match = load_book().match("stick", ingredients)
    assert (match and match[0].makes * match[1]) == makes


def test_all_counts_must_grow_by_the_same_factor():
    book = load_book()
    assert book.match("torch", {"coal": 3, "stick": 3}) is not None
    assert book.match("torch", {"coal": 3, "stick": 2}) is None
    assert book.match("barrel", {"oak_planks": 12, "oak_slab": 4}) is not None
    assert book.match("barrel", {"oak_planks": 12, "oak_slab": 2}) is None


def test_split_has_the_mix_of_the_paper():
    book = load_book()
    sides = split_of_goals()
    test = [goal for goal, side in zip(book.goals, sides, strict=True) if side == "test"]
    assert (
        Counter(book.depths[goal] for goal in test) == NUM_TEST_GOALS == {1: 31, 2: 41, 3: 25, 4: 3}
    )
    assert Counter(sides) == {"train": 552, "test": 100}


def test_families_lie_on_one_side():
    goals = load_book().goals
    sides: dict[str, set[str]] = {}
    for goal, side in zip(goals, split_of_goals(), strict=True):
        sides.setdefault(family_of(goal), set()).add(side)
    assert all(len(side) == 1 for side in sides.values())


@pytest.mark.parametrize(
    ("item", "family"),
    [
        ("light_blue_wool", "wool"),
        ("dark_oak_stairs", "stairs"),
        ("stripped_crimson_hyphae", "wood"),
        ("waxed_exposed_cut_copper_slab", "cut_copper_slab"),
        ("chest", "chest"),
    ],
)
def test_family_is_the_name_without_variety(item: str, family: str):
    assert family_of(item) == family
