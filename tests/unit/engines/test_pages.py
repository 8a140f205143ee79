"""The ledger of pages: who shares what, what is given back, and what is still known."""

from __future__ import annotations

from agentgym_rl.engines.paged.pages import PAGE_SIZE, SCRAP_PAGE, HeldPages, PagePool, pages_for

CONTEXT = list(range(100, 100 + 3 * PAGE_SIZE + 5))


def fill(pool: PagePool, context: list[int]) -> HeldPages:
    """Hold pages for a context as an engine does: find, extend, compute."""
    held = pool.find(context)
    assert pool.extend(held, pages_for(len(context)))
    pool.make_known(held, context, len(context))
    return held


def test_so_many_tokens_need_so_many_pages():
    assert [pages_for(tokens) for tokens in (0, 1, 16, 17, 32)] == [0, 1, 1, 2, 2]


def test_the_scrap_page_is_never_given_out():
    pool, held = PagePool(5), HeldPages()
    assert pool.extend(held, 5)
    assert sorted(held.pages) == [1, 2, 3, 4, 5]
    assert SCRAP_PAGE not in held.pages


def test_extending_beyond_what_is_free_changes_nothing():
    pool, held = PagePool(5), HeldPages()
    assert not pool.extend(held, 6)
    assert held.pages == [] and pool.num_free == 5


def test_contexts_that_begin_alike_share_full_pages_only():
    pool = PagePool(20)
    first, second = fill(pool, CONTEXT), fill(pool, CONTEXT)
    assert second.pages[:3] == first.pages[:3]
    assert second.pages[3] != first.pages[3]
    assert pool.num_free == 20 - 5


def test_the_last_token_is_never_found_because_it_must_be_computed():
    pool = PagePool(20)
    context = CONTEXT[: 2 * PAGE_SIZE]
    fill(pool, context)
    assert len(pool.find(context).pages) == 1


def test_equal_tokens_after_different_ones_are_not_shared():
    pool = PagePool(20)
    first = fill(pool, CONTEXT)
    other = [1, *CONTEXT[1:]]
    assert not set(fill(pool, other).pages) & set(first.pages)


def test_a_page_is_free_when_its_last_holder_gives_it_back():
    pool = PagePool(20)
    first, second = fill(pool, CONTEXT), fill(pool, CONTEXT)
    pool.shrink(first, 0)
    assert pool.num_free == 20 - 4
    pool.shrink(second, 0)
    assert pool.num_free == 20


def test_a_free_page_is_still_found_until_it_is_taken():
    pool = PagePool(6)
    pages = list(fill(pool, CONTEXT).pages)
    pool.shrink(found := pool.find(CONTEXT), 0)
    assert found.pages == []
    held = HeldPages()
    assert pool.extend(held, 2)  # unknown pages are taken first
    assert not set(held.pages) & set(pages)
    assert pool.find(CONTEXT).pages == pages[:3]


def test_a_page_that_is_taken_for_something_else_is_no_longer_found():
    pool = PagePool(4)
    pool.shrink(fill(pool, CONTEXT), 0)
    assert pool.extend(HeldPages(), 4)
    assert pool.find(CONTEXT).pages == []


def test_nothing_is_found_after_all_was_forgotten():
    pool = PagePool(20)
    held = fill(pool, CONTEXT)
    pool.forget_all()
    assert pool.find(CONTEXT).pages == []
    assert len(held.pages) == 4


def test_a_context_that_was_computed_twice_goes_on_being_found():
    pool = PagePool(40)
    first, second = HeldPages(), HeldPages()
    for held in (first, second):  # neither found the other's
        assert pool.extend(held, 4)
        pool.make_known(held, CONTEXT, 2 * PAGE_SIZE)
    pool.make_known(second, CONTEXT, 3 * PAGE_SIZE)
    assert pool.find(CONTEXT).pages == [*first.pages[:2], second.pages[2]]
