import math

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.testing import assert_allclose, assert_array_equal
from scipy.stats import norm
from sklearn.metrics import mean_pinball_loss, mean_squared_error
from torch.nn.functional import gaussian_nll_loss

from coverwell.paper.losses import (
    Interval,
    PaperLoss,
    QuantileLoss,
    coverage_loss,
    gaussian_half_width,
    inter_quantile_range,
    interval_loss,
    iqr_fit_loss,
    noise_loss,
    pinball_loss,
    quantile_levels,
    sharpness_loss,
    sigma_fit_loss,
    soft_coverage,
    squared_error_loss,
    z_score,
)

shares = st.floats(0.01, 0.99)
values = st.floats(-10, 10)
seeds = st.integers(0, 2**16)
fewer = settings(max_examples=25)  # for each of the losses


def double(values):
    return torch.tensor(values, dtype=torch.float64)


def column(*rows):
    """One member, one target: rows on the batch axis."""
    return double(rows).reshape(1, -1, 1)


def bounds(lower, upper):
    """One member, one target, one level."""
    return Interval(double(lower).reshape(1, -1, 1, 1), double(upper).reshape(1, -1, 1, 1))


def gaussian_interval(y_mean, sigma, coverage):
    below, above = gaussian_half_width(sigma, z_score(coverage)).unbind(dim=-2)
    return y_mean[..., None] - below, y_mean[..., None] + above


# By hand: the numbers of the paper's equations ----------------------------------------------------------------------


def test_soft_coverage_by_hand():
    # Bounds -1 and 1: (y + 1)(1 - y) is 1, 0, -3 at y = 0, 1, 2; sigmoid(ln 3 t) = 3^t / (1 + 3^t): 3/4, 1/2, 1/28.
    shared = soft_coverage(column(0, 1, 2), bounds([-1] * 3, [1] * 3), steepness=math.log(3))
    assert_allclose(shared, [[[(3 / 4 + 1 / 2 + 1 / 28) / 3]]])  # = 3/7


def test_equation_2_by_hand():
    loss = coverage_loss(column(0, 1, 2), bounds([-1] * 3, [1] * 3), double([[0.9]]), steepness=math.log(3))
    assert_allclose(loss, [0.9 - 3 / 7])


def test_equation_2_is_averaged_over_targets_and_levels():
    # Reached: the first target 1 and 1, the second 0 and 1 of its single row; asked 0.5 and 0.9.
    y = double([[[0.0, 5.0]]])
    half_width = double([[[[1.0, 2.0], [1.0, 9.0]]]])  # (member, batch, target, level)
    loss = coverage_loss(y, Interval(-half_width, half_width), double([[0.5, 0.9]]), steepness=1e6)
    assert_allclose(loss, [(0.5 + 0.1 + 0.5 + 0.1) / 4])


def test_equation_3_by_hand():
    # Half the widths 1.5 and 1, residuals 1 and -2: (|1.5 - 1| + |1 - 2|) / 2.
    loss = noise_loss(column(1, 4), column(0, 6), bounds([-1, 5], [2, 7]))
    assert_allclose(loss, [0.75])


def test_equation_4_by_hand():
    # |3 - 1| + |1 - 0| = 3 inside, |4 - 5| + |5 - 2| = 4 outside; their mean.
    loss = sharpness_loss(column(1, 5), bounds([0, 2], [3, 4]))
    assert_allclose(loss, [3.5])


def test_equation_5_by_hand():
    # Steepness 4 ln 3 over the squared scale 2^2 is ln 3, so Eq. 2 is 0.9 - 3/7 as above.
    # Eq. 3: half-width 1, residuals 0, 1, 2: (1 + 0 + 1) / 3. Eq. 4: (2 + 2 + 4) / 3.
    y, y_mean, interval = column(0, 1, 2), column(0, 0, 0), bounds([-1] * 3, [1] * 3)
    weights = {"noise_weight": 0.1, "sharpness_weight": 0.3, "steepness": 4 * math.log(3)}
    loss = interval_loss(y, y_mean, interval, double([[0.9]]), scale=double([[2.0]]), **weights)
    assert_allclose(loss, [(0.9 - 3 / 7) + 0.1 * 2 / 3 + 0.3 * 8 / 3])  # = 1.338095


def test_the_quantile_interval_loss_by_hand():
    # Eq. 2 as above. In units of the scale 2: y = 0, 0.5, 1, bounds -0.5 and 0.5.
    # Lower at 0.05: 0.05 (0.5 + 1 + 1.5) / 3 = 0.05. Upper at 0.95: (0.05 x 0.5 + 0 + 0.95 x 0.5) / 3 = 0.5 / 3.
    y, interval = column(0, 1, 2), bounds([-1] * 3, [1] * 3)
    loss = QuantileLoss(steepness=4 * math.log(3))(y, y, interval, double([[0.9]]), scale=double([[2.0]]))
    assert_allclose(loss, [(0.9 - 3 / 7) + 0.05 + 0.5 / 3])


def test_equation_6_by_hand():
    # z = 1.959964 at 95 %: 10 -+ 2 x 1.959964.
    lower, upper = gaussian_interval(column(10), column(2), double([[0.95]]))
    assert_allclose(lower.item(), 6.080072, atol=1e-6)
    assert_allclose(upper.item(), 13.919928, atol=1e-6)


def test_equation_7_by_hand():
    # First row: 2^2 / (2 x 2^2) + ln 2 + 0.5 |2 - 0.25 x 8 / 2| = 0.5 + ln 2 + 0.5.
    # Second row: 0 + ln 1 + 0.5 |1 - 0.25 x 4 / 2| = 0.25.
    matched = {"width": double([8.0, 4.0]).reshape(1, 2, 1, 1), "gamma": double([[[0.25]]])}
    loss = sigma_fit_loss(column(3, 7), column(1, 7), column(2, 1), **matched, match_weight=0.5)
    assert_allclose(loss, [(1 + math.log(2) + 0.25) / 2])


def test_equation_7_matches_sigma_to_the_mean_over_levels():
    # sigma 1; gamma w / 2 is 0.5 x 2 / 2 = 0.5 and 0.25 x 16 / 2 = 2: (0.5 + 1) / 2.
    matched = {"width": double([2.0, 16.0]).reshape(1, 1, 1, 2), "gamma": double([[[0.5, 0.25]]])}
    loss = sigma_fit_loss(column(0), column(0), column(1), **matched, match_weight=1.0)
    assert_allclose(loss, [0.75])


@pytest.mark.parametrize(
    ("y", "quantile", "level", "loss"),
    [
        (3.0, 1.0, 0.9, 1.8),  # 0.9 (3 - 1)
        (1.0, 3.0, 0.9, 0.2),  # (1 - 0.9)(3 - 1)
        (1.0, 3.0, 0.1, 1.8),
        (2.0, 2.0, 0.3, 0.0),
        (0.0, -4.0, 0.5, 2.0),  # half the distance at the median
    ],
)
def test_equation_8_by_hand(y, quantile, level, loss):
    assert_allclose(pinball_loss(column(y), double([[[[quantile]]]]), double([[level]])), [loss], atol=1e-12)


def test_equation_9_by_hand():
    assert_allclose(inter_quantile_range(double([[[[-2.0]]]]), double([[[[5.0]]]])), [[[[7.0]]]])  # 5 - (-2)


def test_the_squared_error_by_hand():
    assert_allclose(squared_error_loss(column(1, 4), column(0, 6)), [2.5])  # (1 + 4) / 2


def test_equation_10_by_hand():
    # (2 - 1)^2 = 1. Levels 0.1 and 0.9: upper (1 - 0.9)(3 - 2) = 0.1, lower 0.1 (2 - 0) = 0.2. |(3 - 0) - 4| = 1.
    weights = {"match_weight": 2.0, "upper_weight": 0.5, "lower_weight": 0.4}
    matched = {"width": double([[[[4.0]]]]), "coverage": double([[0.8]])}
    loss = iqr_fit_loss(column(2), column(1), bounds([0.0], [3.0]), **matched, **weights)
    assert_allclose(loss, [1 + 0.5 * 0.1 + 0.4 * 0.2 + 2 * 1])  # = 3.13


# Twins ---------------------------------------------------------------------------------------------------------------


def stacked(seed, *, members=3, batch=7, targets=2, levels=2):
    """Random arguments of every loss, in float64."""
    draw = torch.Generator().manual_seed(seed)

    def normal(*shape):
        return torch.randn(*shape, generator=draw, dtype=torch.float64)

    y_mean = normal(members, batch, targets)
    below, above = normal(2, members, batch, targets, levels).exp().cumsum(dim=-1)
    return {
        "y": y_mean + normal(members, batch, targets),
        "y_mean": y_mean,
        "sigma": normal(members, batch, targets).exp(),
        "lower": y_mean[..., None] - below,
        "upper": y_mean[..., None] + above,
        "width": normal(members, batch, targets, levels).exp(),
        "gamma": normal(members, targets, levels).exp(),
        "scale": normal(members, targets).exp(),
        "coverage": torch.rand(members, levels, generator=draw, dtype=torch.float64) * 0.8 + 0.1,
    }


def iqr(a):
    weights = {"match_weight": 0.4, "upper_weight": 0.3, "lower_weight": 0.2}
    quantiles, matched = Interval(a["lower"], a["upper"]), {"width": a["width"], "coverage": a["coverage"]}
    return iqr_fit_loss(a["y"], a["y_mean"], quantiles, **matched, **weights)


def sigma(a, match_weight=0.5):
    return sigma_fit_loss(
        a["y"], a["y_mean"], a["sigma"], width=a["width"], gamma=a["gamma"], match_weight=match_weight
    )


def enclosing(loss):
    return lambda a: loss(a["y"], a["y_mean"], Interval(a["lower"], a["upper"]), a["coverage"], scale=a["scale"])


LOSSES = {
    "coverage": lambda a: coverage_loss(a["y"], Interval(a["lower"], a["upper"]), a["coverage"], 2.0),
    "noise": lambda a: noise_loss(a["y"], a["y_mean"], Interval(a["lower"], a["upper"])),
    "sharpness": lambda a: sharpness_loss(a["y"], Interval(a["lower"], a["upper"])),
    "interval": enclosing(PaperLoss()),
    "quantile interval": enclosing(QuantileLoss()),
    "squared error": lambda a: squared_error_loss(a["y"], a["y_mean"]),
    "sigma fit": sigma,
    "pinball": lambda a: pinball_loss(a["y"], a["upper"], a["coverage"]),
    "iqr fit": iqr,
}
every_loss = pytest.mark.parametrize("loss", LOSSES.values(), ids=LOSSES.keys())
PER_ROW = ("y", "y_mean", "sigma", "lower", "upper", "width")


@given(seed=seeds)
def test_the_pinball_loss_is_scikit_learns(seed):
    a = stacked(seed, levels=1)
    loss = pinball_loss(a["y"], a["upper"], a["coverage"])
    for m in range(3):
        twin = mean_pinball_loss(a["y"][m], a["upper"][m, ..., 0], alpha=a["coverage"][m].item())
        assert_allclose(loss[m], twin)


@given(seed=seeds)
def test_the_squared_error_is_scikit_learns(seed):
    a = stacked(seed)
    twin = [mean_squared_error(y, y_mean) for y, y_mean in zip(a["y"], a["y_mean"], strict=True)]
    assert_allclose(squared_error_loss(a["y"], a["y_mean"]), twin)


@given(seed=seeds)
def test_sigma_fit_without_matching_is_the_gaussian_likelihood_of_torch(seed):
    a = stacked(seed)
    twin = gaussian_nll_loss(a["y_mean"], a["y"], a["sigma"].square(), reduction="none", eps=1e-12)
    assert_allclose(sigma(a, match_weight=0.0), twin.mean(dim=(1, 2)))


@given(seed=seeds, share=shares)
def test_the_gaussian_interval_is_scipys(seed, share):
    a = stacked(seed, levels=1)
    lower, upper = gaussian_interval(a["y_mean"], a["sigma"], double([[share]]))
    twin = norm.interval(share, loc=a["y_mean"], scale=a["sigma"])
    assert_allclose(lower[..., 0], twin[0])
    assert_allclose(upper[..., 0], twin[1])


@every_loss
def test_gradients_are_those_of_finite_differences(loss):
    a = stacked(5, members=2, batch=3)
    names = [*PER_ROW]

    def of(*tensors):
        return loss({**a, **dict(zip(names, tensors, strict=True))})

    assert torch.autograd.gradcheck(of, [a[name].clone().requires_grad_() for name in names])


# Properties ----------------------------------------------------------------------------------------------------------


@every_loss
@fewer
@given(seed=seeds)
def test_each_member_has_the_loss_it_would_have_alone(loss, seed):
    a = stacked(seed)
    together = loss(a)
    assert together.shape == (3,)
    for m in range(3):
        assert_allclose(loss({name: value[m : m + 1] for name, value in a.items()}), together[m : m + 1], rtol=1e-12)


@every_loss
@fewer
@given(seed=seeds, order=st.permutations(range(7)))
def test_the_order_of_rows_does_not_matter(loss, seed, order):
    a = stacked(seed)
    turned = {name: value[:, list(order)] if name in PER_ROW else value for name, value in a.items()}
    assert_allclose(loss(turned), loss(a), rtol=1e-10)


@every_loss
@fewer
@given(seed=seeds)
def test_a_batch_repeated_has_the_same_loss(loss, seed):
    a = stacked(seed)  # a mean over rows, where the paper's Eqs. 3 and 4 print sums
    twice = {name: torch.cat([value, value], dim=1) if name in PER_ROW else value for name, value in a.items()}
    assert_allclose(loss(twice), loss(a), rtol=1e-10)


@every_loss
@fewer
@given(seed=seeds, shift=values)
def test_a_shift_of_everything_does_not_matter(loss, seed, shift):
    a = stacked(seed)
    moved = {name: a[name] + shift for name in ("y", "y_mean", "lower", "upper")}
    assert_allclose(loss({**a, **moved}), loss(a), rtol=1e-8)


@pytest.mark.parametrize("name", ["noise", "sharpness", "pinball"])
@fewer
@given(seed=seeds, factor=st.floats(0.1, 10))
def test_distances_grow_with_the_unit(name, seed, factor):
    a = stacked(seed)
    grown = {name: a[name] * factor for name in ("y", "y_mean", "lower", "upper")}
    assert_allclose(LOSSES[name]({**a, **grown}), factor * LOSSES[name](a))


@given(seed=seeds, factor=st.floats(0.01, 100))
def test_the_default_interval_loss_does_not_depend_on_the_unit(seed, factor):
    a = stacked(seed)
    grown = {name: a[name] * factor for name in ("y", "y_mean", "lower", "upper", "scale")}
    assert_allclose(LOSSES["quantile interval"]({**a, **grown}), LOSSES["quantile interval"](a))


@pytest.mark.parametrize("name", ["coverage", "interval", "quantile interval", "pinball", "iqr fit"])
def test_one_row_of_levels_serves_all_members(name):
    a = stacked(3)
    shared = a["coverage"][:1]
    expected = LOSSES[name]({**a, "coverage": shared.expand(3, -1)})
    assert_array_equal(LOSSES[name]({**a, "coverage": shared}), expected)


@given(seed=seeds)
def test_soft_coverage_is_a_share_and_becomes_the_counted_one(seed):
    a = stacked(seed)
    interval = Interval(a["lower"], a["upper"])
    soft = soft_coverage(a["y"], interval, 3.0)
    assert (soft >= 0).all()
    assert (soft <= 1).all()
    y = a["y"][..., None]
    counted = ((a["lower"] <= y) & (y <= a["upper"])).double().mean(dim=1)
    assert_allclose(soft_coverage(a["y"], interval, 1e12), counted, atol=1e-6)


@given(level=shares, y=values, quantile=values)
def test_pinball_mirrors_when_level_and_sign_flip(level, y, quantile):
    loss = pinball_loss(column(y), double([[[[quantile]]]]), double([[level]]))
    mirrored = pinball_loss(column(-y), double([[[[-quantile]]]]), double([[1 - level]]))
    assert_allclose(mirrored, loss, atol=1e-12)
    assert loss >= 0


@given(seed=seeds, level=shares)
def test_pinball_is_lowest_at_the_empirical_quantile(seed, level):
    y = np.random.default_rng(seed).normal(size=15)
    rows = double(y).reshape(1, -1, 1).expand(len(y), -1, -1)  # each value in turn is the guess of one member
    guesses = double(y).reshape(-1, 1, 1, 1).expand(-1, len(y), 1, 1)
    losses = pinball_loss(rows, guesses, double([[level]]))
    best = np.quantile(y, level, method="inverted_cdf")
    assert losses[np.flatnonzero(y == best)[0]] <= losses.min() + 1e-12


@given(residual=st.floats(0.1, 5))
def test_without_matching_the_best_sigma_is_the_size_of_the_residual(residual):
    spread = column(residual).requires_grad_()
    width, gamma = double([[[[100.0]]]]), double([[[1.0]]])
    sigma_fit_loss(column(residual), column(0), spread, width=width, gamma=gamma, match_weight=0.0).backward()
    assert_allclose(spread.grad.item(), 0.0, atol=1e-9)


@fewer
@given(width=st.floats(0.5, 5), offset=st.floats(0.01, 1))
def test_matching_pulls_sigma_to_the_scaled_half_width_with_its_weight(width, offset):
    for sign in (-1, 1):
        gradients = []
        for weight in (0.0, 0.5):
            spread = column(0.5 * 0.6 * width * (1 + sign * 0.5 * offset)).requires_grad_()
            sigma_fit_loss(
                column(1), column(0), spread, width=double([[[[width]]]]), gamma=double([[[0.6]]]), match_weight=weight
            ).backward()
            gradients.append(spread.grad.item())
        assert_allclose(gradients[1] - gradients[0], sign * 0.5, rtol=1e-6)


@pytest.mark.parametrize("name", ["interval", "quantile interval"])
@fewer
@given(seed=seeds)
def test_a_gradient_reaches_both_bounds_of_every_member_target_and_level(name, seed):
    a = stacked(seed)
    leaves = {side: a[side].clone().requires_grad_() for side in ("lower", "upper")}
    LOSSES[name]({**a, **leaves}).sum().backward()
    for leaf in leaves.values():
        assert torch.isfinite(leaf.grad).all()
        assert (leaf.grad.abs().sum(dim=1) > 0).all()  # over the batch: (member, target, level)


def test_equation_2_pulls_the_bounds_out_where_too_few_rows_are_inside_and_in_where_too_many_are():
    y = torch.linspace(-2, 2, 41, dtype=torch.float64).reshape(1, -1, 1)
    for half_width, sign in ((0.5, -1), (1.9, 1)):  # about 25 % and 95 % of the rows, 80 % asked
        half = double(half_width).requires_grad_()
        bound = half.expand(1, 41, 1, 1)
        coverage_loss(y, Interval(-bound, bound), double([[0.8]]), steepness=5.0).backward()
        assert math.copysign(1, half.grad) == sign


# Intervals, z-scores and levels ---------------------------------------------------------------------------------------


def test_z_scores_of_the_textbook():
    asked = double([0.5, 0.6826894921370859, 0.9, 0.95, 0.99])
    assert_allclose(z_score(asked), [0.674490, 1.0, 1.644854, 1.959964, 2.575829], atol=1e-6)


@given(share=shares)
def test_the_z_score_is_the_normal_quantile_of_the_upper_end(share):
    assert_allclose(z_score(double([share])).item(), norm.ppf((1 + share) / 2), rtol=1e-9)


def test_quantile_levels_of_a_ninety_per_cent_interval():
    lower, upper = quantile_levels(double([0.9, 0.5]))
    assert_allclose(lower, [0.05, 0.25])  # (1 - 0.9) / 2, (1 - 0.5) / 2
    assert_allclose(upper, [0.95, 0.75])  # (1 + 0.9) / 2, (1 + 0.5) / 2
