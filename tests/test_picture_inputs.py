import hashlib
from dataclasses import replace

import numpy as np
import pandas as pd
import pytest
import torch

from coverwell import LSTM, MLP, ResNet18
from coverwell.baselines.mc_dropout import DropoutResNet18
from coverwell.datasets import weights
from coverwell.picture_inputs import check_no_pictures, checked_pictures, picture_recipe, with_file


@pytest.fixture
def public_file(tmp_path, monkeypatch):
    """A file of weights that stands for torchvision's, where files of data are looked for."""
    path = tmp_path / weights.RESNET18.name
    torch.save(ResNet18(weights=None).trunk().state_dict(), path)
    sha256 = hashlib.sha256(path.read_bytes()).hexdigest()
    monkeypatch.setattr(weights, "RESNET18", replace(weights.RESNET18, sha256=sha256))
    monkeypatch.setenv("COVERWELL_DATA", str(tmp_path))
    return path


def test_only_a_recipe_for_pictures_is_one():
    assert picture_recipe(ResNet18()) == ResNet18()
    for network in (None, MLP(), LSTM(), ResNet18, torch.nn.Linear, torch.nn.Linear(2, 3)):
        assert picture_recipe(network) is None


def test_imagenet_becomes_the_file_that_holds_it(public_file):
    assert with_file(ResNet18(dropout=0.1)) == ResNet18(dropout=0.1, weights=public_file)


def test_a_random_network_gets_the_file_for_the_one_that_it_is_made_of(public_file):
    assert with_file(DropoutResNet18(ResNet18(), 0.1)) == DropoutResNet18(ResNet18(weights=public_file), 0.1)


@pytest.mark.parametrize("network", [MLP(), LSTM(), ResNet18(weights=None), ResNet18(weights="other.pth")], ids=str)
def test_other_networks_stay_as_they_are(network):
    assert with_file(network) is network


def test_pictures_are_not_read_when_they_are_checked():
    assert len(checked_pictures(["nowhere/1.png", "nowhere/2.png"])) == 2


def test_a_table_is_no_picture():
    with pytest.raises(ValueError, match=r"takes pictures, but X is a table of the shape \(5, 3\)"):
        checked_pictures(np.zeros((5, 3)))
    with pytest.raises(ValueError, match="must have one column, of file paths"):
        checked_pictures(pd.DataFrame(np.zeros((5, 3))))


@pytest.mark.parametrize("X", [np.zeros((5, 3, 8, 8)), torch.zeros(5, 1, 8, 8)], ids=["array", "tensor"])
def test_pictures_are_no_table(X):
    with pytest.raises(ValueError, match=r"takes tables, but X has the shape \(5, ., 8, 8\), as pictures have"):
        check_no_pictures(X)


@pytest.mark.parametrize("X", [np.zeros((5, 3)), pd.DataFrame(np.zeros((5, 3))), [[1.0, 2.0]], None])
def test_tables_and_what_others_judge_pass(X):
    check_no_pictures(X)
