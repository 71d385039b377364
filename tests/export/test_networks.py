"""Teams in a graph: networks of the user's own, and the layers of ours that no other test asks."""

import numpy as np
import pytest
import torch
from coverwell.export import networks, to_onnx
from coverwell.export.graph import Graph, Input
from torch import nn

from coverwell import LSTM, MLP, MatchedRegressor
from coverwell.networks.resnet import ResNet18, ResNet18Trunk
from coverwell.networks.team import network_from

SIZE = 40


def curved(n_inputs, n_outputs):
    return nn.Sequential(nn.Linear(n_inputs, 5), nn.GELU(), nn.Linear(5, n_outputs))


class Choosing(nn.Module):
    """A network whose path depends on its numbers."""

    def __init__(self, n_inputs, n_outputs):
        super().__init__()
        self.linear = nn.Linear(n_inputs, n_outputs)

    def forward(self, x):
        return self.linear(x) if x.sum() > 0 else -self.linear(x)


def test_a_network_of_the_users_own_is_exported(random_regressor, run_file, largest_difference, tmp_path):
    model, rows = random_regressor(network=network_from(curved))
    to_onnx(model, tmp_path / "model.onnx")
    for n_rows in (len(rows), 1):
        said = run_file(tmp_path / "model.onnx", {"X": rows[:n_rows]})
        assert largest_difference(said, model, rows[:n_rows], model.ensembles_[0].targets.spread) < 1e-5
    assert run_file(tmp_path / "model.onnx", {"X": rows[:0]})["lower"].shape == (0, 1, 2)


def test_a_network_that_torch_cannot_export_is_refused_in_one_line(random_regressor, tmp_path, capfd):
    model, _ = random_regressor(network=network_from(Choosing))
    with pytest.raises(ValueError, match=r"^this network of your own cannot be exported: .*MLP\(\)$") as refusal:
        to_onnx(model, tmp_path / "model.onnx")
    assert "\n" not in str(refusal.value)
    assert list(tmp_path.iterdir()) == []
    assert capfd.readouterr() == ("", "")


def test_an_lstm_with_something_beside_its_window_is_exported(random_regressor, run_file, largest_difference, tmp_path):
    network = LSTM(hidden=5, layers=2, steps=3, channels=2)
    model, rows = random_regressor(network=network, n_features=9, n_targets=2)
    for team in (model.ensembles_[0].mean_team, model.ensembles_[0].interval_team):
        nn.init.normal_(team.shortcut.weight)  # it starts at zero
    to_onnx(model, tmp_path / "model.onnx")
    said = run_file(tmp_path / "model.onnx", {"X": rows})
    assert largest_difference(said, model, rows, model.ensembles_[0].targets.spread) < 1e-5


def test_bins_narrower_than_float32_can_tell_apart_are_read_right(run_file, largest_difference, tmp_path):
    rng = np.random.default_rng(0)
    X = np.exp(5 * rng.normal(size=(200, 2)))  # half of the rows share a millionth of the range
    y = np.log(X[:, 0]) + rng.normal(size=200)
    told = {"folds": 2, "repeats": 1, "max_rounds": 1, "random_state": 0, "device": "cpu"}
    model = MatchedRegressor(0.8, network=MLP(hidden=8, bins=16), **told).fit(X, y)
    to_onnx(model, tmp_path / "model.onnx")
    assert largest_difference(run_file(tmp_path / "model.onnx", {"X": X}), model, X, y.std()) < 1e-5


@pytest.fixture(scope="module")
def trunk():
    """A random trunk whose batch norms have seen something."""
    torch.manual_seed(0)
    trunk = ResNet18(weights=None).trunk()
    for module in trunk.modules():
        if isinstance(module, nn.BatchNorm2d):
            nn.init.uniform_(module.weight, 0.2, 0.6)
            nn.init.normal_(module.bias, std=0.1)
            module.running_mean.normal_(std=0.2)
            module.running_var.uniform_(0.5, 2)
    return trunk


def test_the_trunk_has_torchs_features(trunk, run_file, tmp_path):
    assert isinstance(trunk, ResNet18Trunk)
    graph = Graph()
    features = networks.trunk_features(graph, trunk, graph.input(Input("X", np.float32, (3, SIZE, SIZE), "")), SIZE)
    model = graph.model({"features": (graph.cast(features, np.float64), (256, 3, 3))}, {}, "a test")
    (tmp_path / "trunk.onnx").write_bytes(model.SerializeToString())
    pictures = torch.rand(3, 3, SIZE, SIZE)
    said = run_file(tmp_path / "trunk.onnx", {"X": pictures.numpy()})["features"]
    expected = trunk(pictures).double().numpy()
    typical = np.sqrt(np.mean(expected**2))
    np.testing.assert_allclose(said, expected, rtol=0, atol=2e-5 * typical)  # sums of thousands of float32
