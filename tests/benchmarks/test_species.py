"""Bird species: softmax sets, the birds of the picture, the plain head, and what the report says was run."""

from dataclasses import replace

import numpy as np
import pytest
import species

from coverwell.networks.resnet import ResNet18
from reproduction.domains.boxes import GENERATED

SIDE, N = 32, 24


@pytest.fixture(scope="module")
def birds():
    """Images that are bright in one of three colours, as photographs of three species."""
    recipe = ResNet18(weights=None, size=SIDE, mirror="same", dropout=0.0, feature_dropout=0.0)
    known = species.birds_of(2, recipe, "random", device="cpu", quick=True)
    halves = {}
    for name, seed in (("train", 0), ("test", 1)):
        images = np.random.default_rng(seed).integers(0, 60, (N, 3, SIDE, SIDE), dtype=np.uint8)
        colour = np.arange(N) % 3
        images[np.arange(N), colour] += 180
        part = getattr(known.problem, name).take(np.arange(N) % 20)
        labels = np.array(["blue tit", "greenfinch", "robin"])[2 - colour]
        halves[name] = replace(part, images=images, species=labels, image_ids=np.arange(1, N + 1))
    return replace(known, problem=replace(known.problem, **halves))


def test_softmax_sets_end_where_the_probabilities_reach_the_level():
    p = np.array([[0.05, 0.6, 0.35], [0.95, 0.03, 0.02], [0.92, 0.05, 0.03]])
    found = species.softmax_sets(p, levels=(0.9, 0.95))
    assert found[..., 0].tolist() == [[False, True, True], [True, False, False], [True, False, False]]
    assert found[..., 1].tolist() == [[False, True, True], [True, False, False], [True, True, False]]


def test_species_are_the_first_ones_in_a_random_order_of_both_halves(birds):
    one = species.birds_of(1, birds.recipe, "random", device="cpu", quick=True)
    assert set(one.problem.train.species) == set(one.problem.test.species) == set(one.classes)
    assert (len(one.classes), len(species.birds_of(2, birds.recipe, "", device="cpu", quick=True).classes)) == (1, 2)
    assert birds.places(np.array(["robin", "blue tit"])).tolist() == [2, 0]


def test_the_plain_head_learns_and_averages_mirror_images(birds):
    learner = species.Head(epochs=12, learning_rate=3e-3, batch_size=16).fitted(birds)
    images = birds.problem.test.images
    p = species.probabilities(learner, birds, images)
    assert (p.argmax(axis=1) == birds.places(birds.problem.test.species)).mean() > 0.9
    np.testing.assert_allclose(p.sum(axis=1), 1, atol=1e-6)
    np.testing.assert_allclose(species.probabilities(learner, birds, images[..., ::-1].copy()), p, atol=1e-5)


def test_the_birds_of_the_picture_have_small_middle_and_large_sets(birds):
    y, sizes = birds.places(birds.problem.test.species), np.arange(N) % 3 + 1
    p = np.full((N, 3), 0.2)
    p[np.arange(N), y] = 0.6
    sets = (np.arange(3) - y[:, None]) % 3 < sizes[:, None]
    found = species.examples_of(p, sets, birds)
    assert [{len(bird["set"]) for bird in part} for part in found] == [{1}, {2}, {3}]
    for bird in (bird for part in found for bird in part):
        assert bird["set"][0] == [bird["species"], 0.6]
        assert bird["species"] == birds.problem.test.species[bird["image_id"] - 1]


@pytest.fixture(scope="module")
def lines(birds):
    return [species.measure(method, birds) for method in (species.HEAD, *species.MODELS)]


def test_a_line_has_all_scores_and_what_is_there_is_not_run_again(birds, lines):
    assert species.missing(birds, lines) == []
    assert species.missing(birds, lines[1:]) == [species.HEAD]
    assert species.TWICE not in species.missing(replace(birds, settings={}), [])  # the default
    assert species.missing(replace(birds, recipe=replace(birds.recipe, size=64)), lines) == [
        line["method"] for line in lines
    ]
    for line in lines:
        assert sum(line["sets"]["rows_of_size"][0]) == N
        assert ("out_of_fold" in line) == (line["method"] != species.HEAD)
        assert ("examples" in line) == (line["method"] == "matched")


def test_the_report_says_what_was_run_and_what_was_not(lines):
    text = " ".join(species.report(lines).split())
    assert f"3 species of {GENERATED}, 32 x 32 pixels" in text
    assert "3 folds, 1 repeat(s), at most 1 rounds" in text
    assert "were not run here" not in text
    table = [line.split("|")[1].strip() for line in species.report(lines).splitlines() if line.startswith("| ")]
    assert table == ["", "-" * len(species.TWICE), *species.MODELS, "plain head"]
    part = " ".join(species.report([{**line, "data": "cub"} for line in lines]).split())
    assert "the first 3 of 200 species" in part
    assert "CLASSES=200 SIZE=224 DEVICE=cuda" in part


def test_a_picture_without_photographs_says_so_and_names_a_species_that_is_missed(lines, birds):
    pytest.importorskip("matplotlib")
    (line,) = (line for line in lines if "examples" in line)
    bird = {"image_id": 1, "species": "robin", "set": [[f"wren {number}", 0.1] for number in range(10)]}
    line = {**line, "examples": [[bird], [{**bird, "species": "wren 3"}], [{**bird, "species": "wren 8"}]]}
    figure = species.draw(line)
    assert len(figure.axes) == 3
    missed, found, far = ([text.get_text() for text in ax.texts] for ax in figure.axes)
    assert "not in the set: robin" in missed
    assert "and 4 more" in missed
    assert "and 3 more" in found
    assert {"wren 8", "and 3 more"} < set(far)
    assert "wren 6" not in far
    assert "photographs are not ours to print" in " ".join(figure.texts[0].get_text().split())
    on_photographs = species.draw(line, birds.problem)
    assert [len(ax.images) for ax in on_photographs.axes] == [1, 0] * 3


def test_learning_rates_are_compared_on_photographs_that_are_left_out(birds, tmp_path, monkeypatch):
    monkeypatch.setattr(species, "RATES", (1e-3,))
    monkeypatch.setattr(species, "EPOCHS", (1,))
    path = tmp_path / "species-selection.jsonl"
    species.select(birds, path)
    species.select(birds, path)
    (line,) = species.read_lines(path)
    assert line["settings"] == {"epochs": 1, "learning_rate": 1e-3, "batch_size": 128}
    assert "| 1      | 0.001         |" in species.selection_report([line])
