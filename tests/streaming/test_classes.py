"""Streamed fits of classes as a user meets them. Networks are small, so that fits take a second or two."""

import pickle
import warnings

import numpy as np
import polars as pl
import pytest
from numpy.testing import assert_allclose, assert_array_equal

from coverwell import MLP, MatchedClassifier, Schedule, TableFiles, load, save
from coverwell.calibration import effective_rows
from coverwell.errors import CoverageWarning, RareClassWarning, TableFileError
from coverwell.streaming import buffers, fit_streamed
from coverwell.streaming.buffers import StreamedTable

N_ROWS, N_NEW, LEVELS = 4000, 20_000, (0.5, 0.9)
LONG = Schedule(max_rounds=3, mean_epochs=5, interval_epochs=5, growth=1.0)
QUICK = Schedule(max_rounds=1, mean_epochs=1, interval_epochs=1)
SPECIES = np.array(["wren", "crow", "rook"])

pytestmark = pytest.mark.filterwarnings(
    "ignore::coverwell.errors.CoverageWarning"
)  # small networks are short somewhere


def draw(n, seed):
    """Rows whose classes have the probabilities softmax(2a, 0, 2b - 2a)."""
    rng = np.random.default_rng(seed)
    a, b = rng.uniform(-2, 2, n), rng.uniform(0, 1, n)
    logits = np.stack([2 * a, np.zeros(n), 2 * b - 2 * a], axis=1)
    species = SPECIES[(logits + rng.gumbel(size=logits.shape)).argmax(axis=1)]
    return pl.DataFrame({"a": a, "b": b, "species": species})


def written(folder, frame, n_files=3):
    for number, rows in enumerate(np.array_split(np.arange(len(frame)), n_files)):
        frame[rows].write_parquet(folder / f"{number}.parquet")
    return TableFiles(folder)


def model(coverage=LEVELS, **more):
    known = {"network": MLP(hidden=16, layers=3, dropout=0.0, bins=0), "schedule": LONG, "companions": ()}
    return MatchedClassifier(coverage, **{**known, "repeats": 1, "device": "cpu", "random_state": 0, **more})


def features(rows):
    return rows.select("a", "b")


def shares(fitted, rows):
    """Which rows have their class in the set, (row, level); sets may be empty, so that the level is exact."""
    return fitted.predict_set(features(rows), LEVELS, allow_empty=True).contains(rows["species"])


def band(n_ranked, n_new):
    """Four standard deviations of the coverage of new rows by ranks."""
    p = np.array(LEVELS)
    return 4 * np.sqrt(p * (1 - p) * (1 / n_ranked + 1 / n_new))


once = pytest.fixture(scope="module")
rows = once(lambda: draw(N_ROWS, 0))
new = once(lambda: draw(N_NEW, 1))
files = once(lambda rows, tmp_path_factory: written(tmp_path_factory.mktemp("rows"), rows))
fitted = once(lambda files: model().fit(files, "species"))


def test_coverage_of_new_rows_is_near_the_asked_one_at_every_level(fitted, new):
    assert fitted.n_rows_ == fitted.n_ranked_ == N_ROWS
    assert (np.abs(shares(fitted, new).mean(axis=0) - LEVELS) < band(N_ROWS, N_NEW)).all()


def test_a_streamed_fit_errs_as_one_in_memory_does(fitted, rows, new):
    in_memory = model().fit(rows.drop("species"), rows["species"])
    assert_array_equal(fitted.classes_, in_memory.classes_)
    assert fitted.target_names_ == in_memory.target_names_ == ("species",)
    accuracy = [m.score(features(new), new["species"]) for m in (fitted, in_memory)]
    assert abs(accuracy[0] - accuracy[1]) < 1 / np.sqrt(N_ROWS)
    sizes = [m.predict_set(features(new), 0.9).size.mean() for m in (fitted, in_memory)]
    assert abs(sizes[0] / sizes[1] - 1) < 4 / np.sqrt(N_ROWS)


def test_probabilities_are_those_of_the_law(fitted, new):
    a, b = new["a"].to_numpy(), new["b"].to_numpy()
    order = [SPECIES.tolist().index(name) for name in fitted.classes_]
    truth = np.exp(np.stack([2 * a, np.zeros(N_NEW), 2 * b - 2 * a], axis=1)[:, order])
    error = fitted.predict_proba(features(new)) - truth / truth.sum(axis=1, keepdims=True)
    # Some hundred weights from n rows of a variance of at most 1/4.
    assert np.sqrt(np.square(error).mean()) < np.sqrt(0.25 * 100 / N_ROWS)


def test_a_saved_and_a_pickled_model_and_files_predict_the_same(fitted, files, rows, tmp_path):
    save(fitted, tmp_path / "model.safetensors")
    known = fitted.predict_set(features(rows)).members
    for again in (load(tmp_path / "model.safetensors"), pickle.loads(pickle.dumps(fitted))):
        assert again.n_rows_ == again.n_ranked_ == N_ROWS
        assert_array_equal(again.predict_set(features(rows)).members, known)
    assert_array_equal(fitted.predict_set(files).members, known)
    assert_allclose(fitted.predict_proba(files), fitted.predict_proba(features(rows)), atol=1e-12)


def test_out_of_fold_sets_are_about_the_sample(fitted, rows):
    known = fitted.out_of_fold_
    assert known.known.all()
    assert fitted.out_of_fold_rows_.tolist() == list(range(N_ROWS))
    truth = rows["species"].to_numpy()[:, None] == fitted.classes_
    inside = (known.members[..., 1] & truth).any(axis=1).mean()
    assert inside > 0.9 - band(N_ROWS, N_ROWS)[1]  # with the likeliest class it may be more


@pytest.mark.parametrize("calibration", ["cross", "split", None])
def test_a_sample_with_a_forest_sets_thresholds_and_ranks(files, new, calibration, monkeypatch):
    monkeypatch.setattr(buffers, "SAMPLE_ROWS", 1500)
    streamed = model(calibration=calibration, companions=("forest",), schedule=QUICK).fit(files, "species")
    (team,) = streamed.predictor_.fitted_teams
    assert_allclose(team.weights.sum(dim=0), 1)  # of networks and forest, alike for all classes
    n_sampled, share = len(streamed.out_of_fold_rows_), {"cross": 1.0, "split": 0.2, None: 0.0}[calibration]
    assert abs(n_sampled - 1500) < 4 * np.sqrt(1500)
    assert abs(streamed.n_ranked_ - share * n_sampled) <= 4 * np.sqrt(share * (1 - share) * n_sampled)
    kept = ~streamed.out_of_fold_.known
    assert kept.sum() == (streamed.n_ranked_ if calibration == "split" else 0)
    if calibration is not None:
        assert (np.abs(shares(streamed, new).mean(axis=0) - LEVELS) < band(streamed.n_ranked_, N_NEW)).all()


@pytest.mark.parametrize("calibration", ["cross", "split"])
def test_coverage_is_held_within_each_class(files, new, calibration):
    held = model(calibration=calibration, hold_for="class").fit(files, "species")
    inside = shares(held, new)
    for name in SPECIES:
        own = (new["species"] == name).to_numpy()
        n_ranked = own.mean() * held.n_ranked_
        # "cross" ranks one member per row, and deploys five.
        assert (np.abs(inside[own].mean(axis=0) - LEVELS) < band(n_ranked, own.sum()) + 0.01).all()


def test_new_rows_set_the_widths_after_a_streamed_fit(files, new, monkeypatch):
    monkeypatch.setattr(buffers, "SAMPLE_ROWS", 1500)
    streamed = model(schedule=QUICK).fit(files, "species")
    moved, later = new[:10_000].filter(pl.col("a") > 0.5), new[10_000:].filter(pl.col("a") > 0.5)
    streamed.recalibrate(moved.drop("species"), moved["species"])
    assert (np.abs(shares(streamed, later).mean(axis=0) - LEVELS) < band(len(moved), len(later))).all()


def test_weights_count_and_rows_of_weight_zero_are_left_out(tmp_path, rows):
    weight = np.where(rows["b"] > 0.5, 3.0, np.arange(N_ROWS) % 2)
    files = written(tmp_path, rows.with_columns(w=weight))
    streamed = model(calibration="split", schedule=QUICK).fit(files, "species", sample_weight="w")
    assert streamed.n_effective_ == pytest.approx(effective_rows(weight))
    assert (weight[streamed.out_of_fold_rows_] > 0).all()
    assert streamed.feature_names_in_.tolist() == ["a", "b"]
    inside = np.average(shares(streamed, rows), axis=0, weights=weight)
    assert (np.abs(inside - LEVELS) < band(streamed.n_ranked_, effective_rows(weight))).all()


def test_groups_stay_together_and_are_no_feature(tmp_path, rows):
    files = written(tmp_path, rows.with_columns(nest=pl.Series(np.arange(N_ROWS) // 10)))
    streamed = model(schedule=QUICK, calibration="split").fit(files, "species", groups="nest")
    assert streamed.feature_names_in_.tolist() == ["a", "b"]
    kept = ~streamed.out_of_fold_.known.reshape(-1, 10)
    assert (kept.all(axis=1) == kept.any(axis=1)).all()
    assert 0 < kept.mean() < 1


def test_a_class_that_only_the_last_part_has_is_learned(tmp_path):
    frame = draw(1500, 2).with_columns(
        species=pl.when(pl.int_range(1500) < 1300).then("species").otherwise(pl.lit("auk"))
    )
    frame = frame.with_columns(a=pl.when(pl.col("species") == "auk").then(pl.col("a") + 9).otherwise("a"))
    streamed = model().fit(written(tmp_path, frame, 5), "species")
    assert streamed.classes_.tolist() == ["auk", "crow", "rook", "wren"]
    far = frame.filter(pl.col("species") == "auk")
    assert (streamed.predict(features(far)) == "auk").all()
    assert shares(streamed, far)[:, 1].mean() > 0.9 - band(200, 200)[1]


@pytest.mark.parametrize(
    ("values", "kind", "classes"),
    [
        ([3, 1, 20], pl.Int16, [1, 3, 20]),
        ([3, 1, 20], pl.Float32, [1.0, 3.0, 20.0]),
        ([True, False], pl.Boolean, [False, True]),
        (["count", "", "Z"], pl.String, ["", "Z", "count"]),
        (["count", "b", "Z"], pl.Categorical, ["Z", "b", "count"]),
    ],
)
def test_classes_of_every_kind_come_in_the_order_of_a_fit_in_memory(tmp_path, values, kind, classes):
    y = pl.Series(
        "count", [values[k % len(values)] for k in range(600)], dtype=pl.String if kind is pl.Categorical else kind
    )
    frame = draw(600, 0).drop("species").with_columns(y.cast(kind))
    streamed = model(schedule=QUICK).fit(written(tmp_path, frame), "count")
    in_memory = model(schedule=QUICK).fit(frame[:60].drop("count"), frame["count"][:60])
    assert streamed.classes_.tolist() == in_memory.classes_.tolist() == classes
    assert streamed.classes_.dtype == in_memory.classes_.dtype


def test_an_order_of_classes_and_two_classes_work_as_in_memory(files, tmp_path, rows):
    ordered = model(schedule=QUICK, ordered=["rook", "crow", "wren"]).fit(files, "species")
    members = ordered.predict_set(features(rows), 0.9).members
    first, middle, last = (members[:, ordered.classes_.tolist().index(name)] for name in ("rook", "crow", "wren"))
    assert not (first & last & ~middle).any()
    two = written(tmp_path, rows.with_columns(species=pl.col("species") == "crow"))
    low, high = model(schedule=QUICK).fit(two, "species").predict_probability_interval(features(rows[:50]))
    assert (low <= high).all()


# Mistakes ------------------------------------------------------------------------------------------------------------


def with_value(rows, value, place=3900):
    return rows.with_columns(pl.Series("species", [*rows["species"][:place], value, *rows["species"][place + 1 :]]))


def refusal(folder, frame, *, target="species", **options):
    unfitted = model(**options)
    with pytest.raises((ValueError, TypeError)) as caught:
        unfitted.fit(written(folder, frame), target)
    assert not [name for name in vars(unfitted) if name.endswith("_")]
    return str(caught.value)


def test_a_missing_class_is_found_in_its_file(tmp_path, rows):
    message = refusal(tmp_path, with_value(rows, None))
    row = 3900 - 2 * 1333 - 1 + 1
    assert f"'species' must have a class in every row, but has none in row {row} of {tmp_path / '2.parquet'}" in message


def test_numbers_that_are_no_classes_are_found_in_their_file(tmp_path, rows):
    numbers = rows.with_columns(species=pl.int_range(N_ROWS) % 3 * 1.0)
    message = refusal(tmp_path, with_value(numbers, 0.5, 7))
    assert (
        f"must hold classes, got 0.5 in row 8 of {tmp_path / '0.parquet'}; for a quantity, take MatchedReg" in message
    )
    assert "has none in row 8" in refusal(tmp_path, with_value(numbers, float("nan"), 7))


@pytest.mark.parametrize(
    ("species", "message"),
    [
        (pl.lit("wren"), "y must have at least two classes, got one class: 'wren'"),
        (
            pl.when(pl.int_range(N_ROWS) == 9).then(pl.lit("auk")).otherwise("species"),
            "got one of class 'auk'; leave it",
        ),
        (pl.lit(1).cast(pl.Duration), "must hold texts, whole numbers or booleans for its classes, got Duration"),
        (pl.int_range(N_ROWS), "at most 1,000 classes, got 1,334 in the first 1,334 rows; join rare ones, or take"),
    ],
)
def test_one_class_a_lonely_row_and_too_many_classes_are_refused(tmp_path, rows, species, message):
    assert message in refusal(tmp_path, rows.with_columns(species=species))


def test_what_a_streamed_classifier_cannot_do_is_refused(tmp_path, rows):
    assert "starts anew, got warm_start=True" in refusal(tmp_path, rows, warm_start=True)
    assert "a classifier has one target, got species, b; fit a classifier" in refusal(
        tmp_path, rows, target=["species", "b"]
    )
    assert "hold_for='class' needs ranks" in refusal(tmp_path, rows, calibration=None, hold_for="class")
    assert "calibration='split' keeps" in refusal(tmp_path, rows, coverage=0.9999, calibration="split")
    assert "ordered must be True, False or all classes" in refusal(tmp_path, rows, ordered=["wren", "crow"])


def test_a_class_that_the_sample_lacks_is_a_warning_and_one_class_alone_an_error(tmp_path, rows, monkeypatch):
    monkeypatch.setattr(buffers, "SAMPLE_ROWS", 600)
    files = written(tmp_path, rows)
    drawn = model(schedule=QUICK).fit(files, "species").out_of_fold_rows_
    others = np.setdiff1d(np.arange(N_ROWS), drawn)[:5]
    rare = np.isin(np.arange(N_ROWS), others)
    frame = rows.with_columns(species=pl.when(pl.Series(rare)).then(pl.lit("auk")).otherwise("species"))
    with pytest.warns(
        RareClassWarning, match=rf"the sample of {len(drawn)} rows .* has none of class 'auk': it may be"
    ):
        streamed = model(schedule=QUICK).fit(written(tmp_path, frame), "species")
    assert streamed.classes_.tolist() == ["auk", "crow", "rook", "wren"]
    assert np.isfinite(streamed.predict_proba(features(frame))).all()
    assert "two classes are needed there" in refusal(
        tmp_path, rows.with_columns(species=pl.Series(rare)), schedule=QUICK
    )


def test_the_classes_of_files_are_counted_part_by_part(files, rows, monkeypatch):
    table = StreamedTable.of(files, ["species"], None, classify=True)
    assert dict(table.class_counts()) == dict(rows["species"].value_counts().iter_rows())
    monkeypatch.setattr(buffers, "MOST_CLASSES", 2)
    with pytest.raises(TableFileError, match="must have at most 2 classes, got 3 in the first 1,334 rows"):
        table.class_counts()


def test_the_same_seed_gives_the_same_bits_and_no_warning(files, rows):
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        warnings.simplefilter("ignore", CoverageWarning)
        first, second = (fit_streamed(model(schedule=QUICK), files, "species", buffer_rows=1000) for _ in range(2))
    assert_array_equal(first.predict_proba(features(rows)), second.predict_proba(features(rows)))
    assert_array_equal(first.factor_, second.factor_)
