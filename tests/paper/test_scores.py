import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from numpy.testing import assert_allclose, assert_array_equal

from coverwell.options import part_from
from coverwell.paper.scores import Adaptive, Contiguous, LeastLikely, Regularised, Score

EVERY = [LeastLikely(), Adaptive(), Regularised()]
every_score = pytest.mark.parametrize("score", EVERY, ids=lambda score: type(score).__name__)
seeds = st.integers(0, 2**16)


def row(*probabilities):
    return torch.tensor([probabilities], dtype=torch.float64)


def random_rows(seed, *, rows=8, classes=5):
    draw = torch.Generator().manual_seed(seed)
    return torch.randn(rows, classes, generator=draw, dtype=torch.float64).softmax(dim=-1)


def sets_at_every_threshold(scores):
    """Which classes (threshold, row, class) have a score of at most each score that comes up."""
    return scores[None] <= scores.flatten()[:, None, None]


# By hand: half the probability on the first class, the rest on the third and the second ------------------------------


def test_the_score_of_the_least_likely_is_one_minus_the_probability():
    assert_allclose(LeastLikely().of(row(0.5, 0.2, 0.3)), row(0.5, 0.8, 0.7))


def test_the_adaptive_score_adds_up_the_classes_that_are_likelier():
    assert_allclose(Adaptive().of(row(0.5, 0.2, 0.3)), row(0.5, 1.0, 0.8))


def test_the_regularised_score_adds_a_penalty_for_each_place_beyond_the_free_ones():
    assert_allclose(Regularised(penalty=0.1, free=1).of(row(0.5, 0.2, 0.3)), row(0.5, 1.0 + 0.2, 0.8 + 0.1))


def test_no_penalty_leaves_the_adaptive_score():
    assert_array_equal(Regularised(penalty=0.0).of(row(0.5, 0.2, 0.3)), Adaptive().of(row(0.5, 0.2, 0.3)))


def test_a_class_beyond_a_gap_scores_what_lies_between():
    # From the peak in the first place outwards: the second class has .9, so the third, which had .7, has .9 too.
    assert_allclose(Contiguous(LeastLikely(), (0, 1, 2)).of(row(0.6, 0.1, 0.3)), row(0.4, 0.9, 0.9))


def test_classes_may_be_in_another_order_than_their_places():
    # In the order third, first, second: .3, .6, .1 has one peak and no gap.
    assert_allclose(Contiguous(LeastLikely(), (2, 0, 1)).of(row(0.6, 0.1, 0.3)), row(0.4, 0.9, 0.7))


# What holds for all of them ------------------------------------------------------------------------------------------


@every_score
@given(seed=seeds)
def test_the_likeliest_class_has_the_lowest_score_and_the_others_follow_in_order(score, seed):
    p = random_rows(seed)
    scores = score.of(p)
    in_order = scores.gather(-1, p.argsort(dim=-1, descending=True))
    assert (in_order.diff(dim=-1) >= 0).all()


@every_score
@given(seed=seeds)
def test_a_score_does_not_depend_on_the_places_of_the_classes(score, seed):
    p, places = random_rows(seed), torch.randperm(5, generator=torch.Generator().manual_seed(seed))
    assert_allclose(score.of(p[:, places]), score.of(p)[:, places])


@every_score
@given(seed=seeds)
def test_a_score_of_many_members_is_that_of_each(score, seed):
    p = random_rows(seed)
    assert_array_equal(score.of(p.reshape(2, 4, 5)).reshape(8, 5), score.of(p))


@every_score
@given(seed=seeds, order=st.permutations(range(5)))
def test_sets_of_ordered_classes_have_no_gaps_at_any_threshold(score, seed, order):
    scores = Contiguous(score, tuple(order)).of(random_rows(seed))[:, list(order)]
    starts = (
        sets_at_every_threshold(scores).to(torch.int8).diff(dim=-1, prepend=torch.zeros(40, 8, 1, dtype=torch.int8))
    )
    assert ((starts == 1).sum(dim=-1) <= 1).all()  # each set begins at most once


@every_score
@given(seed=seeds, order=st.permutations(range(5)))
def test_the_order_only_raises_scores_and_never_that_of_the_likeliest_class(score, seed, order):
    p = random_rows(seed)
    ordered, plain = Contiguous(score, tuple(order)).of(p), score.of(p)
    assert (ordered >= plain).all()
    likeliest = p.argmax(dim=-1, keepdim=True)
    assert_array_equal(ordered.gather(-1, likeliest), plain.gather(-1, likeliest))


@every_score
@given(seed=seeds, peak=st.integers(0, 4))
def test_the_order_changes_nothing_where_probabilities_fall_to_both_sides(score, seed, peak):
    left, right = random_rows(seed)[:, : peak + 1].sort(dim=-1).values, random_rows(seed + 1)[:, peak + 1 :]
    right = right.sort(dim=-1, descending=True).values * left[:, -1:] * 0.99
    p = torch.cat([left, right], dim=-1)
    p = p / p.sum(dim=-1, keepdim=True)
    assert_allclose(Contiguous(score, tuple(range(5))).of(p), score.of(p))


# Options -------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("name", "score"), [("probability", LeastLikely()), ("adaptive", Adaptive()), ("regularised", Regularised())]
)
def test_a_name_stands_for_its_score(name, score):
    assert part_from("conformity_score", name, Score) == score


def test_an_unknown_name_is_an_error_that_names_the_known_ones():
    with pytest.raises(ValueError, match=r"conformity_score.*'adaptive'.*'sorted'"):
        part_from("conformity_score", "sorted", Score)


@pytest.mark.parametrize(("options", "named"), [({"penalty": -0.1}, "penalty"), ({"free": -1}, "free")])
def test_numbers_that_make_no_sense_are_refused(options, named):
    with pytest.raises(ValueError, match=named):
        Regularised(**options)
