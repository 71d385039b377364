import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.testing import assert_allclose, assert_array_equal
from torch import nn

from coverwell.baselines.random_resnet import SampledTails, heads_of, tails_of
from coverwell.networks.resnet import ResNet18, ResNet18Team
from coverwell.training import everywhere, spoken

N_OUTPUTS = 3


def generator(seed=0):
    return torch.Generator().manual_seed(seed)


def plain_team(n_members=2, n_outputs=N_OUTPUTS):
    """Tails in eval mode whose batch norms have statistics that differ from those of any batch."""
    torch.manual_seed(0)
    team = ResNet18(dropout=0.5, weights=None).build(n_members, (256, 2, 2), n_outputs)
    for norm in team.modules():
        if isinstance(norm, nn.BatchNorm2d):
            nn.init.uniform_(norm.running_mean, -0.5, 0.5)
            nn.init.uniform_(norm.running_var, 0.5, 2.0)
    return team.eval().requires_grad_(False)


TEAM = plain_team()
ROWS = torch.randn(5, 256, 2, 2, generator=generator(7))


def heads(n_samples, n_members=2, seed=1):
    draw = torch.randn(n_members * n_samples, N_OUTPUTS, 513, generator=generator(seed))
    return draw[..., :512] / 16, draw[..., 512]


def said_by(team, rows=ROWS):
    return team(team.for_members(rows[None]))


def test_a_sample_is_its_members_layer_4_with_a_head_of_its_own():
    weights, biases = heads(n_samples=3)
    said = said_by(SampledTails(TEAM, weights, biases))
    assert said.shape == (6, 5, N_OUTPUTS)
    for sample in range(6):
        pooled = tails_of(TEAM)[sample // 3].layer4(ROWS).mean(dim=(2, 3))
        assert_allclose(said[sample], pooled @ weights[sample].T + biases[sample], rtol=1e-5, atol=1e-5)


def test_with_the_heads_of_the_members_samples_are_the_members():
    assert_array_equal(said_by(SampledTails(TEAM, *heads_of(TEAM))), said_by(TEAM))


def test_many_samples_pass_layer_4_once_for_each_member():
    samples, passes = SampledTails(TEAM, *heads(n_samples=20)), []
    for tail in samples.tails.members:
        tail.layer4.register_forward_hook(lambda _, given, __: passes.append(given[0].shape))
    said_by(samples)
    assert passes == [ROWS.shape, ROWS.shape]


def test_samples_take_the_memory_of_their_heads_alone():
    samples = SampledTails(TEAM, *heads(n_samples=4))
    for tail, own in zip(tails_of(samples.tails), tails_of(TEAM), strict=True):
        for name, value in tail.layer4.state_dict().items():
            assert value.data_ptr() == own.layer4.state_dict()[name].data_ptr()


def test_samples_of_a_team_in_training_speak_by_running_statistics_and_leave_it_in_training():
    team = plain_team().train().requires_grad_(True)
    before, state = team.state_of(slice(None)), torch.get_rng_state()
    samples = SampledTails(team, *heads(n_samples=3))
    together = said_by(samples)
    assert_array_equal(together, said_by(SampledTails(TEAM, *heads(n_samples=3))))
    assert not together.requires_grad
    assert all(module.training for module in team.modules())
    assert all(parameter.requires_grad for parameter in team.parameters())
    assert_array_equal(torch.get_rng_state(), state)
    for name, value in team.state_of(slice(None)).items():
        assert_array_equal(value, before[name])


@settings(max_examples=10)
@given(rows=st.lists(st.integers(0, 4), min_size=1, max_size=5), n_samples=st.integers(1, 4))
def test_a_row_is_told_the_same_in_any_company(rows, n_samples):
    samples = SampledTails(TEAM, *heads(n_samples))
    assert_allclose(said_by(samples, ROWS[rows]), said_by(samples)[:, rows], rtol=1e-4, atol=1e-5)


def test_jobs_are_told_about_their_own_rows():
    """Two jobs of one member each, three samples of each member."""
    samples, rows = SampledTails(TEAM, *heads(n_samples=3)), torch.stack([ROWS, ROWS.flip(0)])
    said = everywhere(samples, rows)
    assert_array_equal(said[:3], said_by(samples, rows[0])[:3])
    assert_array_equal(said[3:], said_by(samples, rows[1])[3:])
    assert spoken(samples, rows).dtype == torch.float64


def test_a_row_weighs_what_it_weighs_to_one_member_shared_by_its_samples():
    assert ResNet18Team.weight_of_row(TEAM, 1024) == 64
    assert SampledTails(TEAM, *heads(n_samples=4)).weight_of_row(1024) == 16
    assert SampledTails(TEAM, *heads(n_samples=1)).weight_of_row(1024) == 64


def test_heads_have_the_member_first():
    weights, biases = heads_of(TEAM)
    assert weights.shape == (2, N_OUTPUTS, 512)
    assert_array_equal(weights[1], TEAM.members[1].fc.weight)
    assert_array_equal(biases[1], TEAM.members[1].fc.bias)
