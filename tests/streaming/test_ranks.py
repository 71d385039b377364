import numpy as np
import polars as pl
import pytest
import torch

from coverwell.calibration import CrossScores, Estimate, cross_factor, rank_factor, stretch_scores
from coverwell.ensemble import Ensemble
from coverwell.folds import Problem
from coverwell.inputs.columns import Columns
from coverwell.inputs.scaling import InputScaler, TargetScaler
from coverwell.matching import SigmaFit
from coverwell.networks.mlp import MLP
from coverwell.streaming.ranks import Voices, cross_stretch, split_stretch
from coverwell.streaming.row_hash import RowHash, row_keys
from coverwell.streaming.rows import RowReader, TableLayout
from coverwell.streaming.sketch import RELATIVE_ERROR
from coverwell.streaming.table_parts import TableFiles
from coverwell.training import Learner, Minibatches

N_ROWS, LEVELS = 2000, (0.5, 0.9)
CPU = torch.device("cpu")


def frame():
    rng = np.random.default_rng(0)
    a, b = rng.normal(size=(2, N_ROWS))
    return pl.DataFrame({"a": a, "b": b, "y": a + rng.normal(size=N_ROWS), "z": 5 * b * rng.normal(size=N_ROWS)})


@pytest.fixture(scope="module")
def reader(tmp_path_factory):
    folder, rows = tmp_path_factory.mktemp("rows"), frame()
    rows[:700].write_parquet(folder / "1.parquet")
    rows[700:].write_parquet(folder / "2.parquet")
    files = TableFiles(folder)
    columns = Columns.of(rows.select("a", "b"))
    return RowReader(
        files,
        TableLayout.of(files, ["y", "z"], None),
        columns,
        InputScaler.of(columns.transform(rows)),
        TargetScaler.of(rows.select("y", "z").to_numpy(), unit_range=False),
    )


def voices_of(row_hash):
    """Untrained teams, whose scores are ranked like any others."""
    n, coverage = row_hash.n_members, torch.tensor([LEVELS])
    nobody = Problem(
        torch.zeros(1, 2, 2), torch.zeros(1, 2, 2), *(torch.ones(1, n, 2, dtype=torch.bool),) * 2, coverage
    )
    torch.manual_seed(0)

    def learner(n_outputs):
        team = MLP(hidden=4, bins=0).build(n, (2,), n_outputs)
        return Learner(team, nobody, Minibatches(nobody.trains[0], 2), learning_rate=0.1, memory=0.5)

    matching = SigmaFit()
    return Voices(learner(matching.n_outputs(2, 2)), learner(8), matching, True, torch.ones(1, 2), coverage)


@pytest.mark.parametrize("repeats", [1, 3])
def test_the_factor_is_that_of_exact_ranks_or_a_little_more(reader, repeats):
    row_hash = RowHash(1, folds=4, repeats=repeats)
    voices = voices_of(row_hash)
    parts = [reader.rows(part) for part in reader.files.parts()]
    said = [voices.about(rows, row_hash) for rows in parts]
    y = np.concatenate([rows.y for rows in parts])
    members = Estimate(*(np.concatenate([getattr(s, name) for s in said], axis=1) for name in ("mean", "reach")))
    exact = CrossScores(
        averaged=stretch_scores(y, Estimate(members.mean.mean(axis=0), members.reach.mean(axis=0))),
        singles=stretch_scores(y, members).reshape(-1, 2, 2),
        n_left_out=float(repeats),
        n_members=row_hash.n_members,
    )
    factor = cross_factor(exact, LEVELS)
    found = cross_stretch(voices, reader, row_hash, LEVELS, reference=factor)
    most = 1 + (1 if repeats == 1 else 10) * RELATIVE_ERROR
    assert (found.factor >= factor).all()
    assert (found.factor <= factor * most).all()
    joint = factor * cross_factor(exact.joint(factor), LEVELS)
    assert (found.joint_factor >= joint).all()
    assert (found.joint_factor <= joint * most).all()


def test_members_speak_about_the_rows_that_they_left_out(reader):
    row_hash = RowHash(1, folds=4, repeats=2)
    voices, rows = voices_of(row_hash), reader.rows(reader.files.parts()[0])
    said = voices.about(rows, row_hash)
    all_members = voices.matching.mean(voices.mean.average(torch.from_numpy(rows.x).float().expand(8, -1, -1)), 2)
    left_out = row_hash.left_out_by(rows.keys)
    for row in (0, 1, 500):
        speaking = np.flatnonzero(left_out[:, row])
        assert speaking[0] < 4 <= speaking[1]
        np.testing.assert_allclose(said.mean[:, row], all_members[speaking, row].detach(), atol=1e-5)


def test_split_ranks_the_kept_rows_alone(reader):
    row_hash = RowHash(1, folds=4, repeats=1, kept_share=0.3)
    voices = voices_of(row_hash)
    teams = [learner.average.double() for learner in (voices.mean, voices.interval)]
    ensemble = Ensemble(*teams, voices.matching, LEVELS, np.ones(2), reader.inputs, reader.targets, both=True)
    kept = row_hash.kept(row_keys(0, N_ROWS))
    rows = frame().filter(kept)
    estimate = ensemble.estimate(reader.columns.transform(rows), CPU)
    y = rows.select("y", "z").to_numpy()
    scores = stretch_scores(y, estimate)
    found = split_stretch(ensemble, reader, row_hash, LEVELS, CPU)
    ratio = found.factor / rank_factor(scores, LEVELS)
    assert ((ratio >= 1 - 1e-9) & (ratio <= 1 + 1.001 * RELATIVE_ERROR)).all()
    joint = rank_factor(scores.max(axis=1, keepdims=True), LEVELS)
    assert ((found.joint_factor / joint >= 1 - 1e-9) & (found.joint_factor / joint <= 1 + 1.001 * RELATIVE_ERROR)).all()
