import copy
import math
from pathlib import Path

import pytest
import torch
import torch.nn.functional as F
from numpy.testing import assert_allclose, assert_array_equal
from torch import nn

from coverwell.networks.resnet import (
    BasicBlock,
    ResNet18,
    ResNet18Tail,
    ResNet18Trunk,
    read_weights,
)

# The architecture as published (He et al. 2016, Table 1, 18 layers), in the order and with the names of torchvision.
CONVOLUTIONS = {
    "conv1": (64, 3, 7, 7),
    "layer1.0.conv1": (64, 64, 3, 3),
    "layer1.0.conv2": (64, 64, 3, 3),
    "layer1.1.conv1": (64, 64, 3, 3),
    "layer1.1.conv2": (64, 64, 3, 3),
    "layer2.0.conv1": (128, 64, 3, 3),
    "layer2.0.conv2": (128, 128, 3, 3),
    "layer2.0.downsample.0": (128, 64, 1, 1),
    "layer2.1.conv1": (128, 128, 3, 3),
    "layer2.1.conv2": (128, 128, 3, 3),
    "layer3.0.conv1": (256, 128, 3, 3),
    "layer3.0.conv2": (256, 256, 3, 3),
    "layer3.0.downsample.0": (256, 128, 1, 1),
    "layer3.1.conv1": (256, 256, 3, 3),
    "layer3.1.conv2": (256, 256, 3, 3),
    "layer4.0.conv1": (512, 256, 3, 3),
    "layer4.0.conv2": (512, 512, 3, 3),
    "layer4.0.downsample.0": (512, 256, 1, 1),
    "layer4.1.conv1": (512, 512, 3, 3),
    "layer4.1.conv2": (512, 512, 3, 3),
}
# The first two rows of filter 0 of conv1 for red, as torch prints them for torchvision's trained weights, and what the
# batch norm that is folded into our file multiplies them by.
PRINTED = [
    [-1.0419e-02, -6.1356e-03, -1.8098e-03, 7.4841e-02, 5.6615e-02, 1.7083e-02, -1.2694e-02],
    [1.1083e-02, 9.5276e-03, -1.0993e-01, -2.8050e-01, -2.7124e-01, -1.2907e-01, 3.7424e-03],
]
FOLDED = 0.24339


def shapes_as_published():
    """Each convolution is followed by a batch norm: bn1 after conv1, bn2 after conv2, downsample.1 after .0."""
    shapes = {}
    for name, shape in CONVOLUTIONS.items():
        norm = name.replace("downsample.0", "downsample.1").replace("conv", "bn")
        shapes[f"{name}.weight"] = shape
        for part in ("weight", "bias", "running_mean", "running_var"):
            shapes[f"{norm}.{part}"] = shape[:1]
        shapes[f"{norm}.num_batches_tracked"] = ()
    return shapes | {"fc.weight": (1000, 512), "fc.bias": (1000,)}


def whole_state(seed=0, n_classes=1000):
    """A random whole network, with running statistics that matter, made from the published shapes alone."""
    generator = torch.Generator().manual_seed(seed)
    state = {}
    for name, shape in shapes_as_published().items():
        if name.endswith("num_batches_tracked"):
            state[name] = torch.tensor(7)
        elif len(shape) == 4:  # about as large an output as the input
            state[name] = torch.randn(shape, generator=generator) / math.sqrt(math.prod(shape[1:]))
        else:
            state[name] = 0.5 + torch.rand(shape, generator=generator)
    state["fc.weight"] = torch.randn(n_classes, 512, generator=generator)
    state["fc.bias"] = torch.randn(n_classes, generator=generator)
    return state


@pytest.fixture
def file_of(tmp_path):
    """Writes a state dict and gives its path."""

    def write(state, name="weights.pth"):
        torch.save(state, tmp_path / name)
        return tmp_path / name

    return write


def part(state, *parts):
    return {name: value for name, value in state.items() if name.split(".")[0] in parts}


def trunk_of(state):
    return part(state, "conv1", "bn1", "layer1", "layer2", "layer3")


def norm_twin(x, state, name, training=False):
    mean, var = state[f"{name}.running_mean"].clone(), state[f"{name}.running_var"].clone()
    return F.batch_norm(x, mean, var, state[f"{name}.weight"], state[f"{name}.bias"], training=training)


def block_twin(x, state, name, stride, training=False):
    """A basic block in plain functions."""
    y = F.conv2d(x, state[f"{name}.conv1.weight"], stride=stride, padding=1)
    y = F.relu(norm_twin(y, state, f"{name}.bn1", training))
    y = norm_twin(F.conv2d(y, state[f"{name}.conv2.weight"], padding=1), state, f"{name}.bn2", training)
    if f"{name}.downsample.0.weight" in state:
        x = F.conv2d(x, state[f"{name}.downsample.0.weight"], stride=stride)
        x = norm_twin(x, state, f"{name}.downsample.1", training)
    return F.relu(y + x)


def trunk_twin(images, state):
    mean, sd = torch.tensor([0.485, 0.456, 0.406]), torch.tensor([0.229, 0.224, 0.225])
    x = (images - mean.reshape(1, 3, 1, 1)) / sd.reshape(1, 3, 1, 1)
    x = F.conv2d(x.to(images), state["conv1.weight"], stride=2, padding=3)
    x = F.max_pool2d(F.relu(norm_twin(x, state, "bn1")), 3, stride=2, padding=1)
    for layer, stride in (("layer1", 1), ("layer2", 2), ("layer3", 2)):
        x = block_twin(block_twin(x, state, f"{layer}.0", stride), state, f"{layer}.1", 1)
    return x


def tail_twin(features, state, training=False):
    x = block_twin(features, state, "layer4.0", 2, training)
    x = block_twin(x, state, "layer4.1", 1, training)
    return F.linear(F.adaptive_avg_pool2d(x, 1).flatten(1), state["fc.weight"], state["fc.bias"])


def build(n_members=2, n_outputs=4, size=(3, 3), seed=0, **options):
    torch.manual_seed(seed)
    return ResNet18(**{"weights": None, **options}).build(n_members, (256, *size), n_outputs)


def scenes(n=4, side=32, seed=0):
    """Bright rectangles on noise, and their boxes (x, y, w, h) as fractions of the side."""
    generator = torch.Generator().manual_seed(seed)
    images, boxes = 0.3 * torch.rand(n, 3, side, side, generator=generator), []
    for image in images:
        x, y = torch.randint(0, side // 2, (2,), generator=generator).tolist()
        w, h = torch.randint(side // 4, side // 2, (2,), generator=generator).tolist()
        image[:, y : y + h, x : x + w] += 0.7
        boxes.append([x / side, y / side, w / side, h / side])
    return images, torch.tensor(boxes)


def features(*shape, seed=0):
    return torch.rand(shape, generator=torch.Generator().manual_seed(seed))


@pytest.fixture(scope="module")
def whole():
    return whole_state()


@pytest.fixture(scope="module")
def whole_file(whole, tmp_path_factory):
    path = tmp_path_factory.mktemp("weights") / "resnet18.pth"
    torch.save(whole, path)
    return path


def test_trunk_and_tail_together_have_the_122_names_and_the_shapes_of_torchvision_in_its_order():
    ours = {**ResNet18Trunk().state_dict(), **ResNet18Tail(n_outputs=1000).state_dict()}
    published = shapes_as_published()
    assert len(published) == 122
    assert [(name, tuple(value.shape)) for name, value in ours.items()] == list(published.items())


def test_the_parameters_are_11_689_512_of_them_2_782_784_in_the_trunk():
    trunk, tail = ResNet18Trunk(), ResNet18Tail(n_outputs=1000)
    assert sum(p.numel() for p in trunk.parameters()) == 2_782_784
    assert sum(p.numel() for p in [*trunk.parameters(), *tail.parameters()]) == 11_689_512
    assert len(trunk.state_dict()) == 90


def test_a_whole_state_loads_strictly_and_gives_what_plain_functions_give(whole):
    trunk, tail = ResNet18Trunk(), ResNet18Tail(n_outputs=1000).eval()
    trunk.load_state_dict(trunk_of(whole), strict=True)
    tail.load_state_dict(part(whole, "layer4", "fc"), strict=True)
    images = features(2, 3, 45, 33)
    expected = trunk_twin(images, whole)
    assert_allclose(trunk(images), expected, rtol=1e-4, atol=1e-4)
    assert expected.std() > 0.1  # the comparison is not one of zeros
    assert_allclose(tail(expected).detach(), tail_twin(expected, whole), rtol=1e-3, atol=1e-3)


def identity_norms(module):
    """Batch norms that change nothing in eval mode."""
    for norm in module.modules():
        if isinstance(norm, nn.BatchNorm2d):
            norm.running_var.fill_(1 - norm.eps)
    return module.eval()


def test_a_block_by_hand():
    """The first convolution keeps x, the second doubles: relu(2 relu(x) + x) is 3 x above zero and 0 below."""
    block = identity_norms(BasicBlock(1, 1, stride=1))
    with torch.no_grad():
        for convolution, centre in ((block.conv1, 1.0), (block.conv2, 2.0)):
            convolution.weight.zero_()
            convolution.weight[0, 0, 1, 1] = centre
    said = block(torch.tensor([[[[3.0, -1.0], [0.5, -4.0]]]]))
    assert_allclose(said.detach(), [[[[9.0, 0.0], [1.5, 0.0]]]], rtol=1e-6)


@pytest.mark.parametrize("training", [False, True])
@pytest.mark.parametrize(("n_inputs", "stride"), [(6, 1), (4, 1), (6, 2), (4, 2)])
def test_a_block_is_its_twin_in_plain_functions(n_inputs, stride, training):
    torch.manual_seed(0)
    block = BasicBlock(n_inputs, 6, stride=stride).double().train(training)
    assert (block.downsample is None) == (n_inputs == 6 and stride == 1)
    state = {f"block.{name}": value.clone() for name, value in block.state_dict().items()}
    x = features(3, n_inputs, 7, 4).double() - 0.5
    kept = x.clone()
    assert_allclose(block(x).detach(), block_twin(x, state, "block", stride, training), atol=1e-12)
    assert_array_equal(x, kept)


def test_the_gradients_of_a_block_are_those_of_its_twin():
    torch.manual_seed(0)
    block = BasicBlock(4, 6, stride=2).double().train()
    state = {f"block.{name}": value.detach().clone() for name, value in block.state_dict().items()}
    twins = {name: state[f"block.{name}"].requires_grad_() for name, _ in block.named_parameters()}
    x = features(3, 4, 7, 4).double() - 0.5
    block(x).square().sum().backward()
    block_twin(x, state, "block", 2, training=True).square().sum().backward()
    for name, parameter in block.named_parameters():
        assert_allclose(parameter.grad, twins[name].grad, atol=1e-10)


@pytest.mark.parametrize(
    ("size", "expected"),
    [((1, 1), (1, 1)), ((16, 17), (1, 2)), ((31, 33), (2, 3)), ((64, 50), (4, 4)), ((7, 129), (1, 9))],
)
def test_the_sides_shrink_by_sixteen_rounded_up(size, expected):
    assert ResNet18Trunk()(torch.zeros(2, 3, *size)).shape == (2, 256, *expected)


def test_an_image_of_imagenets_mean_colour_is_zero_to_the_trunk(whole):
    """Without input, only shifts speak: the same as if conv1 had no weights."""
    trunk, deaf = ResNet18Trunk(), ResNet18Trunk()
    for each in (trunk, deaf):
        each.load_state_dict(trunk_of(whole))
    nn.init.zeros_(deaf.conv1.weight)
    grey = torch.tensor([0.485, 0.456, 0.406]).reshape(1, 3, 1, 1).expand(1, 3, 32, 32)
    assert_allclose(trunk(grey), deaf(features(1, 3, 32, 32)), rtol=1e-5)
    assert (trunk(grey + 0.1) != trunk(grey)).any()


def test_the_trunk_stays_in_eval_mode_and_says_the_same_when_a_parent_trains(whole):
    trunk = ResNet18Trunk()
    trunk.load_state_dict(trunk_of(whole))
    parent, images = nn.Sequential(trunk, nn.Dropout(0.5)), features(2, 3, 32, 32)
    before = trunk(images)
    assert parent.train().training
    assert not any(module.training for module in trunk.modules())
    assert trunk.train() is trunk
    assert_array_equal(trunk(images), before)
    for name, value in trunk_of(whole).items():
        assert_array_equal(trunk.state_dict()[name], value)  # no running statistic has moved


def test_the_trunk_gives_no_gradients():
    trunk, images = ResNet18Trunk(), features(1, 3, 16, 16).requires_grad_()
    assert not any(parameter.requires_grad for parameter in trunk.parameters())
    assert not trunk(images).requires_grad


@pytest.mark.parametrize("training", [False, True])
def test_a_team_is_the_twin_of_every_member_on_its_own_rows(training):
    team, x = build(n_members=2, dropout=0.0, feature_dropout=0.0).train(training), features(2, 3, 256, 3, 2)
    states = [copy.deepcopy(tail.state_dict()) for tail in team.members]
    said = team(x).detach()
    assert said.shape == (2, 3, 4)
    for m in range(2):
        assert_allclose(said[m], tail_twin(x[m], states[m], training), rtol=1e-4, atol=1e-4)


def test_running_statistics_move_a_tenth_of_the_way_to_those_of_the_batch():
    team, x = build(n_members=1, feature_dropout=0.0).train(), features(1, 4, 256, 3, 3)
    tail = team.members[0]
    given_to_norm = F.conv2d(x[0], tail.layer4[0].conv1.weight, stride=2, padding=1).detach()  # (4, 512, 2, 2)
    team(x)
    norm = tail.layer4[0].bn1
    assert_allclose(norm.running_mean, 0.1 * given_to_norm.mean(dim=(0, 2, 3)), rtol=1e-4, atol=1e-6)
    assert_allclose(norm.running_var, 0.9 + 0.1 * given_to_norm.var(dim=(0, 2, 3)), rtol=1e-4)


def test_members_start_from_different_weights_everywhere():
    first, second = build(n_members=2).members
    for name, value in first.named_parameters():
        same = (value == second.get_parameter(name)).all()
        assert same == ("bn" in name or "downsample.1" in name), name  # norms start at scale 1 and shift 0


def test_convolutions_start_with_the_variance_of_he_by_their_outputs():
    """Variance 2 / (9 * 512); the relative error of a sample variance of n normals is sqrt(2 / n)."""
    weight = build(n_members=1).members[0].layer4[0].conv1.weight.detach()
    assert abs(weight.var().item() * 9 * 512 / 2 - 1) < 4 * math.sqrt(2 / weight.numel())


def test_a_members_loss_has_gradients_for_that_member_alone():
    team = build().train()
    team(features(2, 3, 256, 3, 3))[1].square().sum().backward()
    assert all((parameter.grad == 0).all() for parameter in team.members[0].parameters())
    assert all((parameter.grad != 0).any() for parameter in team.members[1].parameters())


def test_a_step_of_descent_lowers_every_members_loss_on_four_images():
    torch.manual_seed(0)
    images, boxes = scenes()
    x = ResNet18Trunk()(images).expand(2, -1, -1, -1, -1)
    team = build(dropout=0.0, feature_dropout=0.0, size=x.shape[-2:]).train()
    losses = []
    for _ in range(3):
        per_member = (team(x) - boxes).square().mean(dim=(1, 2))
        losses.append(per_member.detach())
        weights = list(team.parameters())
        slopes = torch.autograd.grad(per_member.sum(), weights)
        with torch.no_grad():
            for weight, slope in zip(weights, slopes, strict=True):
                weight -= 1e-3 * slope
    assert (losses[1] < losses[0]).all()
    assert (losses[2] < losses[1]).all()


@pytest.mark.parametrize("rate", [0.1, 0.5])
def test_in_training_a_share_of_the_pooled_channels_is_silenced(rate):
    team, received = build(n_members=1, dropout=rate).train(), []
    team.members[0].fc.register_forward_pre_hook(lambda _, given: received.append(given[0]))
    team(features(1, 20, 256, 3, 3))
    n = received[0].numel()  # a ReLU of 4 places that is zero everywhere is rare, and less than the tolerance
    assert abs((received[0] == 0).float().mean().item() - rate) < 4 * math.sqrt(rate * (1 - rate) / n)


def test_in_training_a_share_of_the_trunks_channels_is_silenced_each_as_a_whole():
    rate, x = 0.4, features(1, 20, 256, 3, 3).abs() + 1
    team, received = build(n_members=1, feature_dropout=rate).train(), []
    team.members[0].layer4.register_forward_pre_hook(lambda _, given: received.append(given[0]))
    team(x)
    assert_allclose(received[0][received[0] > 0], (x[0] / (1 - rate))[received[0] > 0], rtol=1e-6)
    silenced = (received[0] == 0).flatten(2).float().mean(dim=2)  # (image, channel)
    assert set(silenced.unique().tolist()) == {0.0, 1.0}
    assert abs(silenced.mean().item() - rate) < 4 * math.sqrt(rate * (1 - rate) / silenced.numel())


@pytest.mark.parametrize("shape", [(3, 224, 224), (256,), (256, 0, 7), (256, 7)], ids=str)
def test_inputs_that_are_no_features_of_the_trunk_are_refused_with_the_way_out(shape):
    with pytest.raises(ValueError, match=r"shape \(256, height, width\), got .*pass images through its trunk"):
        ResNet18(weights=None).build(1, shape, 4)


RATES, NO_PATHS = [-0.1, 1.0, math.nan, "a", None, True, [0.1]], [3, True, b"bytes", ["list"]]
BAD = {
    "dropout": (RATES, ValueError, r"dropout must lie in \[0, 1\), got"),
    "feature_dropout": (RATES, ValueError, r"feature_dropout must lie in \[0, 1\), got"),
    "size": ([0, -1, True, 2.5], ValueError, "size must be a whole number of at least 1, got"),
    "mirror": (["box", ""], ValueError, "mirror must be 'same', 'boxes' or None, got"),
    "weights": (NO_PATHS, TypeError, "weights must be a path, 'imagenet' or None, got"),
    "cache": (NO_PATHS, TypeError, "cache must be the path of a folder, or None, got"),
}


@pytest.mark.parametrize(("name", "value"), [(name, value) for name, (values, *_) in BAD.items() for value in values])
def test_a_setting_that_cannot_be_is_refused(name, value):
    recipe = ResNet18()  # the constructor's own types are checked in tests, not in use
    object.__setattr__(recipe, name, value)
    with pytest.raises(BAD[name][1], match=f"^{BAD[name][2]}"):
        recipe.__post_init__()


@pytest.mark.parametrize(("n_images", "side"), [(2, 2), (1, 3)])
def test_a_batch_norm_needs_more_than_one_number(n_images, side):
    tail = ResNet18Tail(n_outputs=1)
    assert tail(torch.rand(n_images, 256, side, 1)).shape == (n_images, 1)
    with pytest.raises(ValueError, match=r"got 2 x 1: give a batch_size of at least 2, or a larger size"):
        tail(torch.rand(1, 256, 2, 1))
    assert tail.eval()(torch.rand(1, 256, 2, 1)).shape == (1, 1)


def test_a_path_in_the_recipe_becomes_text():
    assert ResNet18(weights=Path("some") / "file.pth") == ResNet18(weights=str(Path("some") / "file.pth"))
    assert ResNet18(cache=Path("some") / "folder") == ResNet18(cache=str(Path("some") / "folder"))


def test_operations_by_hand():
    """On 2 x 2 places: 3 x 3 and 1 x 1 from 256 channels to 512, then three times 3 x 3 from 512 to 512."""
    by_hand = 4 * (9 * 256 * 512 + 256 * 512 + 3 * 9 * 512 * 512)
    assert ResNet18().operations_per_row(256 * 4 * 4) == by_hand


def test_a_whole_file_serves_the_trunk_and_layer_4_of_all_members(whole, whole_file):
    trunk, team = ResNet18Trunk(), build(weights=whole_file)
    assert trunk.load_weights(whole_file) == ()
    for name, value in trunk.state_dict().items():
        assert_array_equal(value, whole[name])
    for tail in team.members:
        for name, value in part(tail.state_dict(), "layer4").items():
            assert_array_equal(value, whole[name])
    assert (team.members[0].fc.weight != team.members[1].fc.weight).all()


def test_older_files_without_counts_of_batches_and_other_heads_are_read(whole, file_of):
    older = {name: value for name, value in whole.items() if not name.endswith("num_batches_tracked")}
    assert len(older) == 102
    trunk = ResNet18Trunk()
    assert trunk.load_weights(file_of(older)) == ()
    assert_array_equal(trunk.bn1.running_mean, whole["bn1.running_mean"])
    other = {**whole, "fc.weight": torch.zeros(200, 512), "fc.bias": torch.zeros(200)}
    assert read_weights(file_of(other)).keys() == whole.keys()


def test_missing_names_are_counted_and_up_to_twelve_are_named(whole, file_of):
    trunk = trunk_of(whole)
    for layer, n_absent in (("layer2.1.", 10), ("layer2.", 25)):
        absent = [name for name in trunk if name.startswith(layer) and not name.endswith("num_batches_tracked")]
        state = {name: value for name, value in trunk.items() if name not in absent}
        named = ", ".join(absent[:12]) + (", ..." if n_absent > 12 else "")
        with pytest.raises(ValueError, match=f"got tensors that are {n_absent} missing") as caught:
            ResNet18Trunk().load_weights(file_of(state))
        assert f"({named})" in str(caught.value)


def spoilt(whole):
    """Files that are refused, by what the error says of them."""
    trunk = trunk_of(whole)
    half = {name: value for name, value in whole.items() if name.startswith("layer4.0.")}
    wrapped = {f"module.{name}": value for name, value in trunk.items()}
    return {
        r"10 missing \(layer4\.1\.conv1\.weight": trunk | half,
        r"75 missing \(conv1\.weight, .*; 90 unknown \(module\.conv1\.weight, ": wrapped,
        r"1 of another shape \(conv1\.weight \(64, 1, 7, 7\) instead of \(64, 3, 7, 7\)\)": {
            **trunk,
            "conv1.weight": torch.zeros(64, 1, 7, 7),
        },
        r"fc\.weight \(1000, 3\) instead of \(1000, 512\)": {**whole, "fc.weight": torch.zeros(1000, 3)},
        r"1 not finite \(bn1\.bias\)": {**trunk, "bn1.bias": torch.full((64,), math.nan)},
        r"1 not finite \(bn1\.weight\)": {**trunk, "bn1.weight": torch.full((64,), math.inf)},
    }


def test_files_with_other_tensors_are_refused_by_what_is_wrong_with_them(whole, file_of):
    for said, state in spoilt(whole).items():
        with pytest.raises(ValueError, match=rf"weights\.pth must hold .*{said}"):
            read_weights(file_of(state))


def test_layer_4_starts_fresh_from_a_file_of_the_trunk_alone(whole, file_of):
    path = file_of(trunk_of(whole), "trunk.pth")
    from_file, fresh = build(weights=path), build()
    for name, value in fresh.state_dict().items():
        assert_array_equal(from_file.state_dict()[name], value)


@pytest.mark.parametrize(
    "content",
    [[torch.zeros(3)], {"conv1.weight": 3.0}, {0: torch.zeros(3)}, nn.Linear(1, 1), b"", b"no weights", b"PK\x03\x04"],
    ids=["a list", "a number", "no names", "code", "empty", "text", "half a zip"],
)
def test_a_file_that_holds_no_state_dict_is_refused_by_its_path(tmp_path, content):
    path = tmp_path / "broken.pth"
    if isinstance(content, bytes):
        path.write_bytes(content)
    else:
        torch.save(content, path)
    with pytest.raises(ValueError, match=r"broken\.pth must be a state dict (of names and|that torch\.save wrote)"):
        read_weights(path)


def test_the_first_imagenet_filter_is_the_printed_one_times_its_folded_norm(imagenet_file):
    trunk = ResNet18Trunk()
    assert trunk.load_weights(imagenet_file) == ("layer4", "fc")
    # Five printed digits of both factors: each may be off by half a unit of the last one.
    assert_allclose(trunk.conv1.weight[0, 0, :2], FOLDED * torch.tensor(PRINTED), rtol=1e-4)
