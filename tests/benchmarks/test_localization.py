import json
from pathlib import Path

import localization
import numpy as np
import pytest
import torch
from numpy.testing import assert_allclose
from PIL import Image

from coverwell.inputs.images import images_of

BENCHMARKS = Path(__file__).parents[2] / "benchmarks"


@pytest.fixture(scope="module")
def quick_run(tmp_path_factory):
    """The folder in which a quick run wrote, which had results of another device before."""
    folder = tmp_path_factory.mktemp("results")
    (folder / "localization-quick.json").write_text(json.dumps({"elsewhere": {}}))
    localization.main(["--quick", "--device", "cpu", "--out", str(folder), "--scratch", str(folder)])
    return folder


def read(folder, name="localization-quick.json"):
    return json.loads((folder / name).read_text())


def setting(folder):
    sizes = localization.Sizes(pictures=12, predicted=2, turns=1, batch_size=4, size=32)
    train = localization.rectangles(folder / "train", sizes.pictures)
    return localization.Setting(sizes, torch.device("cpu"), None, train, train.first(2), folder)


@pytest.mark.slow
def test_a_quick_run_measures_every_part_and_keeps_the_results_of_other_devices(quick_run):
    results = read(quick_run)
    assert results["elsewhere"] == {}
    assert set(results["cpu"]) == {"features", "epochs", "prediction"}
    for part in results["cpu"].values():
        assert part["environment"]["seed"] == 0
        assert part["environment"]["weights"] == "random"
        assert part["environment"]["versions"]["torch"] == torch.__version__
    assert [case["members"] for case in results["cpu"]["epochs"]["found"]] == [1, 5]
    for case in (*results["cpu"]["epochs"]["found"], results["cpu"]["prediction"]["found"]):
        assert set(case["ways"]) == {"pictures", "features"}
        assert all(min(times["all"]) == times["seconds"] > 0 for times in case["ways"].values())


@pytest.mark.slow
def test_the_text_is_written_from_the_numbers(quick_run):
    results = read(quick_run)
    assert (quick_run / "localization-quick.md").read_text() == localization.report(results)


@pytest.mark.slow
def test_a_run_leaves_nothing_but_its_results(quick_run):
    assert sorted(path.name for path in quick_run.iterdir()) == ["localization-quick.json", "localization-quick.md"]


@pytest.mark.slow
def test_a_run_of_some_parts_keeps_the_others(quick_run, tmp_path):
    before = read(quick_run)
    (tmp_path / "localization-quick.json").write_text(json.dumps(before))
    localization.main(["--quick", "--device", "cpu", "--out", str(tmp_path), "--parts", "features"])
    after = read(tmp_path)["cpu"]
    assert after["features"] != before["cpu"]["features"]
    assert {**after, "features": None} == {**before["cpu"], "features": None}


@pytest.mark.slow
def test_the_bytes_on_disk_are_those_of_the_numbers_in_float16(quick_run):
    """20 pictures of 32 x 32 pixels, a sixteenth of that after the trunk; the file's head and seal come on top."""
    found = read(quick_run)["cpu"]["features"]["found"]
    assert found["shape"] == [256, 2, 2]
    assert 20 * 256 * 2 * 2 * 2 < found["bytes"] < 20 * 256 * 2 * 2 * 2 + 1000


def test_both_ways_train_the_same_tails_alike(tmp_path):
    """The same batches by seed, features in full precision, and no dropout; Adam makes much of little differences."""
    told = setting(tmp_path)
    trunk = localization.seeded_trunk(told.recipe())
    features = trunk(torch.cat(list(images_of(told.train.pictures).batches(size=32))))
    learner, other = (localization.learner_on(features, told, 2) for _ in range(2))
    from_pictures = localization.FromPictures(other, told)
    for team in (learner.team, from_pictures.team):
        for tail in team.members:
            tail.dropout.p = 0.0
    start = learner.team.members[1].fc.bias.detach().clone()
    torch.manual_seed(1)
    localization.train_from_features(learner, epochs=1)
    torch.manual_seed(1)
    from_pictures.epoch()
    for trained, twin in zip(learner.team.members, from_pictures.team.members, strict=True):
        for name, value in trained.fc.named_parameters():
            assert_allclose(value.detach(), dict(twin.fc.named_parameters())[name].detach(), atol=1e-5)
    assert ((learner.team.members[1].fc.bias.detach() - start).abs() > 1e-4).all()  # it has moved


def test_generated_pictures_are_bright_inside_their_boxes_and_nowhere_else(tmp_path):
    boxed = localization.rectangles(tmp_path / "pictures", 3)
    for path, box in zip(boxed.pictures, boxed.boxes, strict=True):
        pixels = np.asarray(Image.open(path)).min(axis=2)
        left, top, width, height = np.rint(box * len(pixels)).astype(int)
        inside = np.zeros(pixels.shape, dtype=bool)
        inside[top : top + height, left : left + width] = True
        assert ((pixels >= 150) == inside).all()


def test_birds_of_both_parts_come_with_boxes_in_fractions(shared_data, monkeypatch):
    if not (shared_data / "localization").is_dir():
        pytest.skip("the photographs are not there")
    monkeypatch.setenv("COVERWELL_DATA", str(shared_data))
    train, test = (localization.birds(3, train=train) for train in (True, False))
    assert len(train.pictures) == len(test.pictures) == 3
    assert train.boxes.shape == (3, 4)
    assert ((train.boxes > 0) & (train.boxes < 1)).all()
    assert not np.array_equal(train.boxes, test.boxes)
    assert train.pictures[0].shape[2] == 3


def test_the_committed_text_comes_from_the_committed_numbers():
    folder = BENCHMARKS / "results"
    assert (folder / "localization.md").read_text() == localization.report(read(folder, "localization.json"))
