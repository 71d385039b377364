import scale_grid
from coverwell.experiments.methods import METHODS, methods_from


def test_table1_has_the_seven_rows_of_the_paper():
    told = scale_grid.options("table1", quick=False)
    slugs = told[told.index("--methods") + 1].split(",")
    assert len(methods_from(slugs)) == 7
    assert {"mc-dropout", "concrete-dropout", "quantiles", "bnn", "hnn"} < set(slugs)


def test_figure3_has_all_methods_and_levels_and_the_trials_of_the_paper():
    assert scale_grid.options("figure3", quick=False) == ["--trials", "5", "--jobs", "7"]
    assert len(METHODS) >= 12


def test_the_target_is_judged_by_the_clock_on_a_gpu_alone():
    found = {"command": "coverwell reproduce table1", "seconds": 301.0, "fits": 210, "tables": 6, "levels": 11}
    found |= {"trials": 5, "seconds of each method": {"hnn": 12.0}}
    assert "Target 5 minutes: MISSED" in scale_grid.lines_of("table1", found, "cuda")
    assert "Target 5 minutes: reached" in scale_grid.lines_of("table1", {**found, "seconds": 299.0}, "cuda")
    assert "Target" not in scale_grid.lines_of("table1", found, "cpu")
