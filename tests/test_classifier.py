"""MatchedClassifier: sets that contain the true class as often as asked, and probabilities."""

import pickle

import numpy as np
import pandas as pd
import pytest
import torch
from numpy.testing import assert_allclose, assert_array_equal
from sklearn.model_selection import GridSearchCV
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler

import coverwell
from coverwell import MLP, MatchedClassifier
from coverwell.calibration import Split
from coverwell.options import Schedule

BRIEF = {
    "network": MLP(hidden=16, layers=2, bins=4),
    "schedule": Schedule(max_rounds=2),
    "repeats": 1,
    "companions": (),
    "random_state": 0,
}
LEVELS = (0.5, 0.8, 0.9)
N_NEW = 4000
STANDARD_ERRORS = 4.0  # one test in some 16,000 is then wrong by chance


def law(n, seed, share_of_last=1 / 3):
    """Three classes around three points, the last one as rare as asked; they overlap."""
    rng = np.random.default_rng(seed)
    y = rng.choice(3, n, p=[(1 - share_of_last) / 2, (1 - share_of_last) / 2, share_of_last])
    centres = np.array([[0, 0], [1.5, 0], [0.7, 1.3]])
    return np.column_stack([centres[y] + rng.normal(size=(n, 2)), rng.normal(size=n)]), y


def tolerance(level, n, n_new=N_NEW):
    """Of the coverage of one fit by ranks of n rows."""
    return STANDARD_ERRORS * np.sqrt(level * (1 - level) * (1 / n + 1 / n_new))


@pytest.fixture(scope="module")
def fitted():
    return MatchedClassifier(LEVELS, **BRIEF).fit(*law(500, 0))


@pytest.fixture(scope="module")
def new():
    return law(N_NEW, 1)


def test_sets_that_may_be_empty_contain_the_class_as_often_as_asked(fitted, new):
    X, y = new
    inside = fitted.predict_set(X, allow_empty=True).contains(y)
    for level, share in zip(LEVELS, inside.mean(axis=0), strict=True):
        assert abs(share - level) < tolerance(level, 500) + 0.01  # cross ranks: near, as measured


def test_split_covers_at_least_as_asked_on_average(new):
    X, y = new
    shares = []
    for seed in range(4):
        model = MatchedClassifier(0.8, calibration=Split(0.4), **BRIEF | {"random_state": seed}).fit(
            *law(300, seed + 2)
        )
        shares.append(model.predict_set(X, allow_empty=True).contains(y).mean())
    assert np.mean(shares) > 0.8 - tolerance(0.8, 4 * 120)
    assert np.mean(shares) < 0.8 + 1 / 121 + tolerance(0.8, 4 * 120)


def test_sets_of_higher_levels_contain_those_of_lower_ones_also_of_levels_asked_later(fitted, new):
    sets = np.asarray(fitted.predict_set(new[0], coverage=[0.3, 0.5, 0.73, 0.9, 0.97], allow_empty=True))
    assert (sets[..., :-1] <= sets[..., 1:]).all()


def test_the_likeliest_class_is_in_every_set_unless_sets_may_be_empty(fitted, new):
    X, _ = new
    likeliest = fitted.predict_proba(X).argmax(axis=1)
    sets, bare = (np.asarray(fitted.predict_set(X, 0.5, allow_empty=empty)) for empty in (False, True))
    assert sets[np.arange(len(X)), likeliest].all()
    assert_array_equal(sets, bare | (np.arange(3) == likeliest[:, None]))


def test_the_prediction_is_the_likeliest_class_and_probabilities_sum_to_one(fitted, new):
    p = fitted.predict_proba(new[0])
    assert_array_equal(fitted.predict(new[0]), fitted.classes_[p.argmax(axis=1)])
    assert_allclose(p.sum(axis=1), 1.0, rtol=1e-12)
    assert fitted.score(*new) > 0.6  # the best possible is near 0.7


def test_probabilities_are_near_those_of_the_law(new):
    X, _ = new
    model = MatchedClassifier(0.9, **BRIEF).fit(*law(2000, 3))
    density = np.exp(-0.5 * ((X[:, None, :2] - np.array([[0, 0], [1.5, 0], [0.7, 1.3]])) ** 2).sum(axis=2))
    exact = density / density.sum(axis=1, keepdims=True)
    assert np.abs(model.predict_proba(X) - exact).mean() < 0.06


def test_no_probability_is_below_zero_where_a_forest_is_sure():
    rng = np.random.default_rng(0)
    X = rng.integers(0, 3, (200, 4)).astype(float)
    y = X[:, 0] == X[:, 1]
    model = MatchedClassifier(0.9, **BRIEF | {"companions": ("forest",)}).fit(X, y)
    model.predictor_.fitted_teams[0].weights[:] = torch.tensor([[0.0], [1.0]], dtype=torch.float64)
    p = model.predict_proba(X)
    assert (p >= 0).all()
    assert (model.out_of_fold_.probability >= 0).all()


def test_each_class_is_covered_with_ranks_of_its_own(new):
    """The last class has a tenth of the rows. Without `hold_for` it makes way for the others."""
    rows, (X, y) = law(1500, 4, share_of_last=0.1), law(N_NEW, 5, share_of_last=0.1)
    shares = {}
    for held in (None, "class"):
        model = MatchedClassifier(0.8, hold_for=held, **BRIEF).fit(*rows)
        inside = model.predict_set(X, allow_empty=True).contains(y)
        shares[held] = [inside[y == label].mean() for label in range(3)]
    assert shares[None][2] < 0.7
    for label, share in enumerate(shares["class"]):
        n, n_new = np.sum(rows[1] == label), np.sum(y == label)
        assert abs(share - 0.8) < tolerance(0.8, n, n_new) + 0.02


def test_sets_of_ordered_classes_have_no_gaps():
    rng = np.random.default_rng(6)
    X = rng.normal(size=(400, 2))
    grades = np.array(["bad", "fair", "good", "best"])
    y = grades[np.digitize(X[:, 0] + 1.5 * rng.normal(size=400), [-1, 0, 1])]
    model = MatchedClassifier(0.8, ordered=list(grades), **BRIEF).fit(X, y)
    place = [list(model.classes_).index(grade) for grade in grades]
    sets = np.asarray(model.predict_set(rng.normal(size=(500, 2))))[:, place].astype(int)
    starts = (np.diff(sets, axis=1, prepend=0) == 1).sum(axis=1)
    assert (starts == 1).all()
    assert (sets.sum(axis=1) > 1).any()


@pytest.mark.parametrize(
    "labels", [["a", "b", "c"], [3, 1, 7], np.array([-1.0, 0.0, 2.0])], ids=["texts", "numbers", "floats"]
)
def test_labels_come_back_as_they_were_given(labels):
    X, y = law(120, 7)
    given = np.asarray(labels)[y]
    model = MatchedClassifier(0.8, **BRIEF).fit(X, given)
    assert_array_equal(model.classes_, np.unique(given))
    assert model.predict(X).dtype == given.dtype
    assert set(model.predict_set(X[:5]).to_list()[0]) <= set(np.unique(given).tolist())


def test_frames_and_series_keep_names_and_index():
    X, y = law(120, 8)
    frame = pd.DataFrame(X, columns=list("abc"), index=np.arange(120) + 1000)
    model = MatchedClassifier([0.5, 0.8], **BRIEF).fit(frame, pd.Series(y, index=frame.index, name="kind"))
    assert model.target_names_ == ("kind",)
    table = model.predict_set(frame.iloc[:4]).to_frame()
    assert table.index.tolist() == [1000, 1001, 1002, 1003]
    assert table.shape == (4, 6)


def test_the_same_seed_gives_the_same_bits_and_files_and_pickles_keep_them(fitted, new, tmp_path):
    X = new[0][:50]
    again = MatchedClassifier(LEVELS, **BRIEF).fit(*law(500, 0))
    coverwell.save(fitted, tmp_path / "model.safetensors")
    for other in (again, coverwell.load(tmp_path / "model.safetensors"), pickle.loads(pickle.dumps(fitted))):
        assert_array_equal(other.predict_proba(X), fitted.predict_proba(X))
        assert_array_equal(np.asarray(other.predict_set(X, 0.73)), np.asarray(fitted.predict_set(X, 0.73)))


def test_two_classes_have_an_interval_for_the_probability(new):
    X, y = law(400, 9)
    model = MatchedClassifier(0.9, **BRIEF).fit(X, y == 2)
    low, high = model.predict_probability_interval(new[0])
    assert ((low >= 0) & (low <= high) & (high <= 1)).all()
    # Pooled over rows, the share of the second class lies between the two, up to chance.
    share, slack = (new[1] == 2).mean(), STANDARD_ERRORS * np.sqrt(0.25 / 400)
    assert low.mean() - slack < share < high.mean() + slack


def test_more_classes_have_none(fitted, new):
    with pytest.raises(ValueError, match="an interval for the probability needs two classes and folds, got 3 classes"):
        fitted.predict_probability_interval(new[0])


@pytest.mark.parametrize("score", ["adaptive", "regularised"])
def test_scores_that_add_up_probabilities_take_many_classes(score):
    """More than sixteen: where equal probabilities are sorted, their order is not what it was."""
    rng = np.random.default_rng(10)
    y = np.repeat(np.arange(20), 15)
    X = np.column_stack([y + 2 * rng.normal(size=len(y)), rng.normal(size=len(y))])
    model = MatchedClassifier(0.8, conformity_score=score, **BRIEF).fit(X, y.astype(str))
    X_new = np.column_stack([y + 2 * rng.normal(size=len(y)), rng.normal(size=len(y))])
    share = model.predict_set(X_new).contains(y.astype(str)).mean()
    assert share > 0.8 - tolerance(0.8, 300, 300) - 0.01


def test_pipelines_and_searches_take_it():
    X, y = law(150, 12)
    search = GridSearchCV(
        make_pipeline(StandardScaler(), MatchedClassifier(0.8, **BRIEF)),
        {"matchedclassifier__matching": ["confidence", None]},
        cv=2,
    )
    search.fit(X, y)
    assert search.best_score_ > 1 / 3
    assert search.best_estimator_[-1].predict_set(X[:3]).contains(y[:3]).shape == (3,)


def test_matching_lowers_confidence_where_the_threshold_is_wide(new):
    """The data loss alone against a heavy match: probabilities before any calibrator are flatter."""
    from coverwell.paper.matching import ConfidenceFit

    rows, spread = law(500, 13), []
    for matching in (None, ConfidenceFit(0.5)):
        team = MatchedClassifier(0.9, matching, **BRIEF).fit(*rows).predictor_.fitted_teams[0]
        team.calibrator = None
        p = team(torch.from_numpy(new[0]))[0].numpy()
        spread.append(p.max(axis=1).mean())
    assert spread[1] < spread[0] - 0.02


@pytest.mark.parametrize(
    "choices", [{"conformity_score": "adaptive"}, {"hold_for": "class", "companions": ("forest",)}], ids=str
)
def test_an_onnx_file_has_the_probabilities_and_sets_of_the_model(choices, tmp_path, new):
    runtime = pytest.importorskip("onnxruntime")
    X, y = law(200, 14)
    model = MatchedClassifier([0.5, 0.8], **BRIEF | choices).fit(X, np.array(["a", "b", "c"])[y])
    rows = new[0][:200].clip(X.min(axis=0), X.max(axis=0))
    coverwell.to_onnx(model, tmp_path / "model.onnx")
    p, sets = runtime.InferenceSession(tmp_path / "model.onnx").run(None, {"X": rows})
    assert_allclose(p, model.predict_proba(rows), atol=1e-5)
    assert_array_equal(sets, np.asarray(model.predict_set(rows)))
