import math

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from numpy.testing import assert_allclose, assert_array_equal
from sklearn.metrics import mean_squared_error

from coverwell.options import part_from
from coverwell.paper.losses import Interval, Levels, iqr_fit_loss, sigma_fit_loss, z_score
from coverwell.paper.matching import IQRFit, Matching, MatchTarget, SigmaFit, Unmatched

STRATEGIES = [SigmaFit(), IQRFit(), Unmatched()]
every_strategy = pytest.mark.parametrize("matching", STRATEGIES, ids=lambda s: type(s).__name__)
seeds = st.integers(0, 2**16)


def double(values):
    return torch.tensor(values, dtype=torch.float64)


def inverse_softplus(value):
    return math.log(math.expm1(value))


def target(*, width, empirical_coverage, coverage, scale):
    return MatchTarget(*map(double, (width, empirical_coverage, coverage, scale)))


def levels_of(coverage):
    return Levels(coverage, z_score(coverage))


def random_case(matching, seed, *, members=3, batch=6, targets=2, levels=2):
    """Outputs, targets and what they are matched to, with everything of order one."""
    draw = torch.Generator().manual_seed(seed)

    def normal(*shape):
        return torch.randn(*shape, generator=draw, dtype=torch.float64)

    outputs = normal(members, batch, matching.n_outputs(targets, levels))
    asked = MatchTarget(
        width=normal(members, batch, targets, levels).exp(),
        empirical_coverage=torch.rand(members, targets, levels, generator=draw, dtype=torch.float64) * 0.8 + 0.1,
        coverage=double([[0.5, 0.9]]).expand(members, -1),
        scale=normal(members, targets).exp(),
    )
    return outputs, normal(members, batch, targets), asked


def test_how_many_numbers_each_strategy_needs():
    assert SigmaFit().n_outputs(n_targets=3, n_levels=2) == 6  # a mean and a sigma per target
    assert IQRFit().n_outputs(n_targets=3, n_levels=2) == 15  # a mean and two pairs of quantiles per target
    assert Unmatched().n_outputs(n_targets=3, n_levels=2) == 3


@every_strategy
def test_the_first_outputs_are_the_mean(matching):
    outputs = torch.arange(float(matching.n_outputs(2, 2))).expand(1, 3, -1)
    assert_array_equal(matching.mean(outputs, 2), torch.tensor([0.0, 1.0]).expand(1, 3, 2))


def test_sigma_is_positive_for_any_output():
    outputs = torch.tensor([[[0.0, -1000.0], [0.0, 0.0], [0.0, 50.0]]])
    # softplus(-1000) = 0, softplus(0) = ln 2, softplus(50) = 50, each with the smallest sigma 1e-4 added
    assert_allclose(SigmaFit().sigma(outputs, 1)[0, :, 0], [1e-4, math.log(2) + 1e-4, 50.0001], rtol=1e-6)


def test_the_half_width_of_sigma_fit_by_hand():
    # A sigma of 2 gives 2 x 0.67449 at 50 % and 2 x 1.64485 at 90 %, on both sides.
    outputs = double([[[7.0, inverse_softplus(2 - 1e-4)]]])
    half_width = SigmaFit().half_width(outputs, 1, levels_of(double([[0.5, 0.9]])))
    assert half_width.shape == (1, 1, 1, 2, 2)
    assert_allclose(half_width[0, 0, 0], [[1.3489795, 3.2897073]] * 2, rtol=1e-6)


@given(seed=seeds, own_levels=st.booleans())
def test_the_half_width_of_sigma_fit_is_that_of_equation_6(seed, own_levels):
    outputs, _, _ = random_case(SigmaFit(), seed)
    coverage = double([[0.5, 0.9], [0.2, 0.8], [0.1, 0.99]] if own_levels else [[0.5, 0.9]])
    sigma = SigmaFit().sigma(outputs, 2)
    below, above = SigmaFit().half_width(outputs, 2, levels_of(coverage)).unbind(dim=-2)
    normal = torch.distributions.Normal(0.0, sigma[..., None])
    assert_allclose(above, normal.icdf((1 + coverage[:, None, None, :]) / 2), rtol=1e-9)
    assert_allclose(-below, normal.icdf((1 - coverage[:, None, None, :]) / 2), rtol=1e-9)
    assert (below > 0).all()
    assert (below[..., 1] > below[..., 0]).all()  # nested, as the levels are


def test_quantile_heads_are_ordered_by_side_target_and_level():
    outputs = torch.arange(10.0).reshape(1, 1, 10)  # two means, then lower and upper of 2 targets x 2 levels
    lower, upper = IQRFit().quantiles(outputs, 2)
    assert_array_equal(lower[0, 0], [[2.0, 3.0], [4.0, 5.0]])
    assert_array_equal(upper[0, 0], [[6.0, 7.0], [8.0, 9.0]])


def test_sigma_fit_by_hand():
    # Reached 68.27 %: z = 1, gamma = 1. In units of the scale 2: residual (3 - 1) / 2 = 1, sigma 4 / 2 = 2, width 8.
    # 1 / (2 x 4) + ln 2 + 0.5 |2 - 8 / 2| = 0.125 + ln 2 + 1.
    outputs = double([[[1.0, inverse_softplus(4 - 1e-4)]]])
    asked = target(width=[[[[16.0]]]], empirical_coverage=[[[0.6826894921370859]]], coverage=[[0.9]], scale=[[2.0]])
    assert_allclose(SigmaFit(match_weight=0.5).loss(outputs, double([[[3.0]]]), asked), [1.125 + math.log(2)])


def test_sigma_fit_takes_gamma_from_the_empirical_and_not_the_asked_coverage():
    outputs, y = double([[[0.0, 1.0]]]), double([[[0.0]]])
    losses = [
        SigmaFit().loss(outputs, y, target(width=[[[[2]]]], empirical_coverage=[[[0.8]]], coverage=[[p]], scale=[[1]]))
        for p in (0.5, 0.99)
    ]
    assert losses[0] == losses[1]


@pytest.mark.parametrize(("empirical", "kept"), [(0.0, 0.05), (0.01, 0.05), (1.0, 0.999), (0.9999, 0.999)])
def test_gamma_stays_finite_where_no_row_or_every_row_is_inside(empirical, kept):
    outputs, y = double([[[0.0, 1.0]]]), double([[[0.5]]])
    clipped, plain = (
        SigmaFit().loss(outputs, y, target(width=[[[[3]]]], empirical_coverage=[[[r]]], coverage=[[0.9]], scale=[[1]]))
        for r in (empirical, kept)
    )
    assert torch.isfinite(clipped).all()
    assert_allclose(clipped, plain)


def test_iqr_fit_by_hand():
    # In units of the scale 2: y = 2, mean 1, quantiles 0 and 3, width 4; the worked example of Eq. 10.
    # 1 + 0.5 x 0.1 + 0.4 x 0.2 + 2 |3 - 4|
    outputs = double([[[2.0, 0.0, 6.0]]])
    asked = target(width=[[[[8.0]]]], empirical_coverage=[[[0.7]]], coverage=[[0.8]], scale=[[2.0]])
    loss = IQRFit(match_weight=2.0, upper_weight=0.5, lower_weight=0.4).loss(outputs, double([[[4.0]]]), asked)
    assert_allclose(loss, [3.13])


@given(seed=seeds)
def test_sigma_fit_is_equation_7_in_units_of_the_scale(seed):
    outputs, y, asked = random_case(SigmaFit(), seed)
    unit = asked.scale[:, None, :]
    normal = torch.distributions.Normal(0.0, 1.0)
    sigma = (torch.nn.functional.softplus(outputs[..., 2:]) + 1e-4) / unit
    gamma, width = 1 / normal.icdf((1 + asked.empirical_coverage) / 2), asked.width / unit[..., None]
    twin = sigma_fit_loss(y / unit, outputs[..., :2] / unit, sigma, width=width, gamma=gamma, match_weight=0.7)
    assert_allclose(SigmaFit(match_weight=0.7).loss(outputs, y, asked), twin, rtol=1e-9)


@given(seed=seeds)
def test_iqr_fit_is_equation_10_in_units_of_the_scale(seed):
    outputs, y, asked = random_case(IQRFit(), seed)
    unit = asked.scale[:, None, :]
    heads = outputs[..., 2:].unflatten(-1, (2, 2, 2)) / unit[..., None, :, None]  # (..., side, target, level)
    quantiles, weights = Interval(*heads.unbind(dim=-3)), vars(IQRFit())
    matched = {"width": asked.width / unit[..., None], "coverage": asked.coverage}
    twin = iqr_fit_loss(y / unit, outputs[..., :2] / unit, quantiles, **matched, **weights)
    assert_allclose(IQRFit().loss(outputs, y, asked), twin, rtol=1e-9)


@given(seed=seeds)
def test_unmatched_is_the_squared_error_of_scikit_learn(seed):
    outputs, y, asked = random_case(Unmatched(), seed)
    twin = [mean_squared_error(*pair) for pair in zip(y, outputs, strict=True)]
    assert_allclose(Unmatched().loss(outputs, y, asked), twin)


@given(seed=seeds, factor=st.floats(0.01, 100))
def test_iqr_fit_does_not_depend_on_the_unit(seed, factor):
    outputs, y, asked = random_case(IQRFit(), seed)
    grown = MatchTarget(asked.width * factor, asked.empirical_coverage, asked.coverage, asked.scale * factor)
    assert_allclose(IQRFit().loss(outputs * factor, y * factor, grown), IQRFit().loss(outputs, y, asked))


@given(factor=st.floats(0.1, 100), sigma=st.floats(0.1, 5), y=st.floats(-3, 3))
def test_sigma_fit_does_not_depend_on_the_unit(factor, sigma, y):
    losses = []
    for unit in (1.0, factor):
        outputs = double([[[0.5 * unit, inverse_softplus(sigma * unit - 1e-4)]]])
        asked = target(width=[[[[3.0 * unit]]]], empirical_coverage=[[[0.9]]], coverage=[[0.9]], scale=[[0.7 * unit]])
        losses.append(SigmaFit().loss(outputs, double([[[y * unit]]]), asked).item())
    assert_allclose(losses[0], losses[1], rtol=1e-6, atol=1e-9)


@every_strategy
@given(seed=seeds, order=st.permutations(range(3)))
def test_members_in_another_order_have_their_losses_in_that_order(matching, seed, order):
    outputs, y, asked = random_case(matching, seed)
    order = list(order)
    turned = MatchTarget(asked.width[order], asked.empirical_coverage[order], asked.coverage[order], asked.scale[order])
    loss = matching.loss(outputs, y, asked)
    assert loss.shape == (3,)
    assert_array_equal(matching.loss(outputs[order], y[order], turned), loss[order])


def test_in_iqr_fit_the_squared_error_alone_trains_the_mean():
    outputs, y, asked = random_case(IQRFit(), 0)
    outputs.requires_grad_()
    IQRFit().loss(outputs, y, asked).sum().backward()
    # d/dm of the mean over 6 rows and 2 targets of ((y - m) / s)^2
    expected = 2 * (outputs[..., :2] - y) / asked.scale[:, None, :].square() / 12
    assert_allclose(outputs.grad[..., :2], expected.detach())
    assert (outputs.grad[..., 2:] != 0).all()  # the pinball and the range train every quantile


@pytest.mark.parametrize(("name", "matching"), [("sigma", SigmaFit()), ("iqr", IQRFit()), (None, Unmatched())])
def test_names_stand_for_strategies_with_default_weights(name, matching):
    assert part_from("matching", name, Matching) == matching
