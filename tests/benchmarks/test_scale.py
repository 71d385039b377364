import json
from pathlib import Path

import pytest
import scale
import torch

from coverwell.training import MOST_ROWS_PER_EPOCH

RESULTS = Path(__file__).parents[2] / "benchmarks" / "results"


@pytest.fixture(scope="module")
def quick_run(tmp_path_factory):
    """The folder in which a quick run of two parts wrote, which had a part of another device before."""
    folder = tmp_path_factory.mktemp("results")
    (folder / "scale-quick.json").write_text(json.dumps({"elsewhere": {}}))
    scale.main(["--quick", "--device", "cpu", "--parts", "members", "floors", "--out", str(folder)])
    return folder


def read(folder, name="scale-quick.json"):
    return json.loads((folder / name).read_text())


def test_each_part_is_stored_by_device_with_where_it_was_measured_and_others_stay(quick_run):
    results = read(quick_run)
    assert results["elsewhere"] == {}
    assert set(results["cpu"]) == {"members", "floors"}
    for part in results["cpu"].values():
        assert part["environment"]["versions"]["torch"] == torch.__version__
        assert part["environment"]["load after"] >= 0


def test_the_text_is_written_from_the_numbers_and_nothing_else_is_left(quick_run):
    assert (quick_run / "scale-quick.md").read_text() == scale.report(read(quick_run))
    assert sorted(path.name for path in quick_run.iterdir()) == ["scale-quick.json", "scale-quick.md"]


def test_a_part_that_is_run_again_replaces_itself_alone(quick_run, tmp_path):
    before = read(quick_run)
    (tmp_path / "scale-quick.json").write_text(json.dumps(before))
    scale.main(["--quick", "--device", "cpu", "--parts", "floors", "--out", str(tmp_path)])
    after = read(tmp_path)["cpu"]
    assert after["members"] == before["cpu"]["members"]
    assert after["floors"] != before["cpu"]["floors"]


def test_parts_that_add_to_stored_ones_do_so(tmp_path):
    own = {"splits": [100], "seconds": 1.0, "rounds": [4], "coverage": [0.9], "width": [2.0], "rmse": [1.0]}
    own |= {"interval score": [3.0]}
    where = {"date": "2026-01-02", "cpu": "a processor", "cores": 2, "seed": 0, "load before": 0.0, "load after": 0.0}
    where |= {"versions": {"torch": "2"}}

    def result(table):
        fits = [{**own, "table": table, "way": way} for way in scale.scale_precision.WAYS]
        return {"environment": where, "found": {"asked": 0.9, "timed": fits, "fits": fits}}

    for table in ("boston", "crime", "boston"):
        scale.store(tmp_path / "scale.json", "cuda", "precision", result(table))
    fits = read(tmp_path, "scale.json")["cuda"]["precision"]["found"]["fits"]
    assert sorted({fit["table"] for fit in fits}) == ["boston", "crime"]
    assert len(fits) == 6


def test_without_names_a_device_has_the_parts_that_are_meant_for_it(monkeypatch):
    monkeypatch.setattr(torch.cuda, "is_available", lambda: True)

    def asked(**given):
        return scale.wanted(scale.argparse.Namespace(**{"quick": False, "device": None, "parts": None, **given}))

    everything = asked()
    assert ("cpu", "members") in everything
    assert ("cuda", "members") in everything
    assert ("cpu", "floors") not in everything
    assert ("cuda", "rows") not in everything
    assert asked(parts=["floors"], device="cpu") == [("cpu", "floors")]
    assert {device for device, _ in asked(quick=True)} == {"cpu"}


def test_every_place_of_the_page_is_filled_from_the_numbers_of_its_part(quick_run):
    text = "a\n<!-- numbers: cpu members -->\nold\n<!-- end -->\nb\n<!-- numbers: cuda rows -->\n<!-- end -->\n"
    filled = scale.page(text, read(quick_run))
    assert "| batch | members |" in filled
    assert "old" not in filled
    assert f"<!-- numbers: cuda rows -->\n{scale.NOT_MEASURED}\n<!-- end -->" in filled
    assert scale.page(filled, read(quick_run)) == filled


def test_the_guide_has_a_place_for_every_part_and_its_numbers_are_the_stored_ones():
    text, results = scale.PAGE.read_text(), scale.kept(scale.STORED)
    places = {match.groups()[1:3] for match in scale.PLACE.finditer(text)}
    assert places - {("cpu", scale.BILLION)} == {(d, name) for name, part in scale.PARTS.items() for d in part.devices}
    assert scale.page(text, results) == text
    assert f"at most {MOST_ROWS_PER_EPOCH:,} random rows" in text


def test_the_committed_text_comes_from_the_committed_numbers():
    assert (RESULTS / "scale.md").read_text() == scale.report(read(RESULTS, "scale.json"))
