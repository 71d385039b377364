"""Parts that are surely short come first; very many parts are ranked as a few are."""

from hypothesis import given
from hypothesis import strategies as st

from coverwell.ranking import ranked
from coverwell.slices import BY_CHANCE, Slice, Slices

counts = st.integers(1, 60).flatmap(lambda n: st.tuples(st.just(n), st.integers(0, n)))


def test_a_part_is_short_if_chance_does_not_explain_it_among_all_parts():
    found = Slices(0.9, (Slice("city", "Oslo", 40, 20), Slice("city", "Rome", 40, 36), Slice("city", "Bern", 5, 4)))
    assert [part.values for part in ranked(found).short] == ["Oslo"]


def test_parts_that_are_surely_short_come_before_small_ones_that_chance_explains():
    small, large = Slice("id", "7", 4, 1), Slice("city", "Oslo", 1000, 850)
    found = Slices(0.9, (small, *[Slice("x", str(n), 10, 9) for n in range(30)], large))
    assert small.high < large.high
    assert ranked(found).parts[:2] == [large, small]


@given(sizes=st.lists(counts, min_size=1, max_size=12), asked=st.sampled_from([0.5, 0.8, 0.99]))
def test_the_order_is_that_of_the_parts_one_by_one(sizes, asked):
    found = Slices(asked, tuple(Slice("city", str(place), *size) for place, size in enumerate(sizes)))
    assert ranked(found).parts == list(found.worst(len(found)))
    assert ranked(found).n_short == sum(found.chance(part) < BY_CHANCE for part in found)


def test_the_column_with_the_worst_part_comes_first():
    parts = Slice("area", "1 to 2", 40, 36), Slice("city", "Oslo", 40, 36), Slice("city", "Rome", 40, 10)
    found = ranked(Slices(0.9, parts))
    assert list(found.by_column) == ["city", "area"]
    assert [part.values for part in found.by_column["city"]] == ["Rome", "Oslo"]


def test_no_parts_are_no_ranks():
    assert ranked(Slices(0.9, ())).parts == []
