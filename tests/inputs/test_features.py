"""Features are what the trunk says, computed once; the file that keeps them is whole or not there."""

import errno
import os
import shutil
import signal
import subprocess
import sys
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import nn
from torch.utils.data import Dataset

from coverwell.errors import DamagedFeaturesWarning
from coverwell.inputs.features import bytes_kept, features_of, forget
from coverwell.inputs.images import images_of
from tests.inputs.test_images import scene

SIZE = 32
N = 70  # more than two batches


def tiny_trunk(seed=0):
    """From (batch, 3, height, width) to (batch, 6, height / 8, width / 8)."""
    with torch.random.fork_rng():
        torch.manual_seed(seed)
        return nn.Sequential(nn.Conv2d(3, 4, 4, 4), nn.BatchNorm2d(4), nn.ReLU(), nn.Conv2d(4, 6, 2, 2), nn.ReLU())


class Scenes(Dataset):
    """A data set that knows its key and counts how often an image is read."""

    def __init__(self, key="scenes", n=N):
        self.key, self.n, self.n_read = key, n, 0

    def __len__(self):
        return self.n

    def __getitem__(self, position):
        self.n_read += 1
        return scene(position, 40, 50)


class BreaksAt(Scenes):
    def __init__(self, position, error):
        super().__init__()
        self.position, self.error = position, error

    def __getitem__(self, position):
        if position == self.position:
            raise self.error
        return super().__getitem__(position)


def features(images, trunk=None, **options):
    return features_of(images, trunk or tiny_trunk(), **{"size": SIZE, "device": "cpu", **options})


def names_in(folder):
    return [path.name for path in folder.iterdir()] if folder.exists() else []


@pytest.fixture
def cache(tmp_path):
    return tmp_path / "new" / "cache"


CLOSE = {"rtol": 1 / 2048, "atol": 2e-6}  # a float16, and another order of sums


@pytest.mark.parametrize("kept", [True, False])
def test_features_are_what_the_trunk_gives_image_by_image_on_disk_in_float16(cache, kept):
    ours = features(Scenes(), cache=cache if kept else None)
    both = features(Scenes(), mirrored=True, cache=cache if kept else None)
    images = torch.cat(list(images_of(Scenes()).batches(size=SIZE)))
    with torch.no_grad():
        own, of_mirror_images = tiny_trunk().eval()(images), tiny_trunk().eval()(images.flip(-1))
    np.testing.assert_allclose(ours.astype(np.float32), own, **CLOSE)
    np.testing.assert_allclose(both.astype(np.float32), torch.stack([own, of_mirror_images], dim=1), **CLOSE)
    assert isinstance(ours, np.memmap)
    assert ours.dtype == np.float16
    with pytest.raises(ValueError, match="read-only"):
        ours[0] = 0
    if kept:  # any numpy reads the file
        assert any(np.array_equal(np.load(path), ours) for path in cache.iterdir())


def test_the_trunk_runs_in_eval_mode_and_stays_as_it_was():
    trunk = tiny_trunk().train()
    before = {name: value.clone() for name, value in trunk.state_dict().items()}
    np.testing.assert_array_equal(features(Scenes(), trunk), features(Scenes()))
    assert trunk.training
    assert all(torch.equal(value, before[name]) for name, value in trunk.state_dict().items())


def test_a_trunk_may_give_features_of_any_shape():
    pooled = nn.Sequential(tiny_trunk(), nn.AdaptiveAvgPool2d(1), nn.Flatten())
    assert features(Scenes(), pooled).shape == (N, 6)
    assert features(Scenes(), pooled, mirrored=True).shape == (N, 2, 6)


def test_features_that_are_kept_are_found_and_no_image_is_read_again(cache):
    scenes = Scenes()
    first = features(scenes, cache=cache)
    assert scenes.n_read == N
    again = features(scenes, tiny_trunk(), cache=str(cache))
    assert scenes.n_read == N
    np.testing.assert_array_equal(again, first)
    assert len(names_in(cache)) == 1


class Centred(nn.Module):
    """A trunk with a buffer that is not in its state, and a number that it does not print."""

    def __init__(self, mean, stride=8):
        super().__init__()
        self.layers = nn.Conv2d(3, 6, 8, stride, bias=False)
        nn.init.constant_(self.layers.weight, 0.1)
        self.register_buffer("mean", torch.tensor(mean), persistent=False)

    def forward(self, x):
        return self.layers(x - self.mean)


class CentredToo(Centred):
    """The same numbers under another kind, which may use them otherwise."""


def changed_weight():
    trunk = tiny_trunk()
    with torch.no_grad():
        trunk.state_dict()["3.bias"][2] += 1e-7
    return trunk


@pytest.mark.parametrize(
    ("one", "other"),
    [
        ({}, {"images": Scenes("other")}),
        ({}, {"images": Scenes(n=N - 1)}),
        ({}, {"trunk": changed_weight()}),
        ({}, {"size": 40}),
        ({}, {"mirrored": True}),
        ({"trunk": Centred(0.5)}, {"trunk": Centred(0.4)}),
        ({"trunk": Centred(0.5)}, {"trunk": Centred(0.5, stride=4)}),
        ({"trunk": Centred(0.5)}, {"trunk": CentredToo(0.5)}),
    ],
)
def test_each_part_of_the_key_matters(cache, one, other):
    plain = {"images": Scenes(), "trunk": tiny_trunk(), "cache": cache}
    for given_here in (one, other, one, other):
        features(**{**plain, **given_here})
    assert len(names_in(cache)) == 2


class FailsLate(nn.Module):
    """A trunk that fails at its third batch."""

    n_batches = 0

    def forward(self, x):
        self.n_batches += 1
        if self.n_batches == 3:
            raise RuntimeError("out of memory")
        return x[:, :, ::8, ::8]


FAILURES = {
    "at once": (BreaksAt(0, KeyboardInterrupt()), tiny_trunk()),
    "in between": (BreaksAt(40, RuntimeError("the data set fails")), tiny_trunk()),
    "at the end": (BreaksAt(N - 1, KeyboardInterrupt()), tiny_trunk()),
    "in the trunk": (Scenes(), FailsLate()),
}


@pytest.mark.parametrize(("images", "trunk"), FAILURES.values(), ids=FAILURES)
def test_an_interruption_leaves_nothing_and_no_thread(cache, images, trunk):
    with pytest.raises((KeyboardInterrupt, RuntimeError)) as raised:  # kept, with all that its frames hold
        features(images, trunk, cache=cache)
    assert raised.tb is not None
    assert names_in(cache) == []
    assert not any(thread.name.startswith("coverwell") for thread in threading.enumerate())


@pytest.mark.parametrize("kept", [True, False])
def test_a_disk_without_room_for_all_is_noticed_at_the_first_batch(cache, kept, monkeypatch):
    usage = shutil.disk_usage(cache.parents[2])
    monkeypatch.setattr(shutil, "disk_usage", lambda _: usage._replace(free=N * 6 * 4 * 4 * 2 - 1))
    scenes = Scenes(n=3 * N)
    with pytest.raises(OSError, match=r"take 40,320 bytes, but only 13,439 are free; make room") as raised:
        features(scenes, cache=cache if kept else None)
    assert raised.value.errno == errno.ENOSPC
    assert not kept or str(cache) in raised.value.__notes__[0]
    assert names_in(cache) == []
    assert scenes.n_read < 3 * N


KILLED = """
import os, signal, sys, time
import numpy as np, torch
from coverwell.inputs.features import features_of

class Killed:
    key = "killed"
    def __len__(self):
        return 400
    def __getitem__(self, position):
        if position == 300:
            time.sleep(0.2)
            os.kill(os.getpid(), signal.SIGKILL)
        return np.zeros((8, 8), dtype=np.uint8)

features_of(Killed(), torch.nn.Conv2d(3, 64, 4, 4), size=64, device="cpu", cache=sys.argv[1])
"""


@pytest.mark.skipif(os.name != "posix", reason="signals are POSIX's")
def test_a_killed_process_leaves_no_features_and_what_it_left_can_be_removed(cache):
    environment = {**os.environ, "PYTHONPATH": str(Path(__file__).parents[2] / "src")}
    killed = subprocess.run([sys.executable, "-c", KILLED, str(cache)], env=environment, check=False)
    assert killed.returncode == -signal.SIGKILL
    (left,) = cache.iterdir()
    assert left.suffix == ".part"
    assert left.stat().st_size > 0
    assert bytes_kept(cache) == forget(cache) == 0  # its writer might still be at work
    os.utime(left, (time.time() - 7200,) * 2)
    assert bytes_kept(cache) == left.stat().st_size
    assert forget(cache) > 0
    assert names_in(cache) == []


DAMAGE = {
    "empty": lambda content: b"",
    "cut in the seal": lambda content: content[:-1],
    "cut in the numbers": lambda content: content[: len(content) // 2],
    "cut in the header": lambda content: content[:20],
    "longer": lambda content: content + b"\n",
    "header": lambda content: content.replace(b"(70, ", b"(71, ", 1),
    "zeros": lambda content: bytes(len(content)),
    "other": lambda content: b"a text",
}


@pytest.mark.parametrize("damage", DAMAGE)
def test_a_damaged_file_is_noticed_and_replaced(cache, damage):
    wanted = np.array(features(Scenes(), cache=cache))
    (path,) = cache.iterdir()
    content = path.read_bytes()
    path.write_bytes(DAMAGE[damage](content))
    assert path.read_bytes() != content
    with pytest.warns(DamagedFeaturesWarning, match=r"features-.*\.npy is damaged; its features are computed again"):
        again = features_of(Scenes(), tiny_trunk(), size=SIZE, device="cpu", cache=cache)
    np.testing.assert_array_equal(again, wanted)
    assert path.read_bytes() == content
    features(Scenes(), cache=cache)  # without a warning


@given(place=st.integers(0, 10**9), bit=st.integers(0, 7))
@settings(max_examples=20)
def test_any_flipped_bit_is_noticed(tmp_path_factory, place, bit):
    cache = tmp_path_factory.getbasetemp() / "flipped"
    features(Scenes(n=3), cache=cache)
    (path,) = cache.iterdir()
    content = bytearray(path.read_bytes())
    content[place % len(content)] ^= 1 << bit
    path.write_bytes(content)
    with pytest.warns(DamagedFeaturesWarning):
        features(Scenes(n=3), cache=cache)


def test_two_that_compute_the_same_features_at_once_do_not_hurt_each_other(cache):
    together, trunk = threading.Barrier(2), tiny_trunk()

    class Meeting(Scenes):
        def __getitem__(self, position):
            if position in (0, N - 1):  # both have begun before one goes on, and both are nearly through
                together.wait(timeout=10)
            return super().__getitem__(position)

    with ThreadPoolExecutor(2) as pool:
        results = list(pool.map(lambda _: features(Meeting(), trunk, cache=cache), range(2)))
    wanted, scenes = features(Scenes()), Scenes()
    for result in (*results, features(scenes, cache=cache)):
        np.testing.assert_array_equal(result, wanted)
    assert len(names_in(cache)) == 1
    assert scenes.n_read == 0


@pytest.mark.skipif(os.name != "posix", reason="elsewhere a file in use cannot be removed")
def test_features_in_use_outlive_their_file(cache):
    ours = features(Scenes(), cache=cache)
    forget(cache)
    np.testing.assert_array_equal(ours, features(Scenes()))


def test_what_is_kept_can_be_counted_and_removed_and_other_files_stay(cache):
    assert bytes_kept(cache) == forget(cache) == 0  # no such folder
    features(Scenes(), cache=cache)
    features(Scenes(), cache=cache, mirrored=True)
    (cache / "notes.npy").write_bytes(b"of the user")
    (cache / "features-of-mine.txt").write_bytes(b"of the user")
    kept = sum(path.stat().st_size for path in cache.glob("features-*.npy"))
    assert 3 * N * 6 * 4 * 4 * 2 < kept < 3 * N * 6 * 4 * 4 * 2 + 1000
    assert bytes_kept(str(cache)) == kept
    assert forget(str(cache)) == kept
    assert bytes_kept(cache) == 0
    assert sorted(names_in(cache)) == ["features-of-mine.txt", "notes.npy"]


class By(nn.Module):
    """A trunk that is a function."""

    def __init__(self, output):
        super().__init__()
        self.output = output

    def forward(self, x):
        return self.output(x)


@pytest.mark.parametrize(
    ("factor", "said"),
    [
        (1e5, "features of image 33 go beyond 65,504, the largest float16, .* or let the trunk divide"),
        (float("nan"), "features of image 0 are NaN or infinite, .* look at the trunk's weights"),
    ],
)
def test_features_that_float16_cannot_hold_name_the_image(cache, factor, said):
    levels = np.linspace(0, 1, 50).reshape(-1, 1, 1, 1) * np.ones((1, 1, 4, 4))
    with pytest.raises(ValueError, match=said):
        features(levels, By(lambda x: x.mean(dim=(2, 3)) * factor), cache=cache)  # 32 / 49 is below 0.655, 33 / 49 not
    assert names_in(cache) == []


@pytest.mark.parametrize("output", [lambda x: (x, x), lambda x: x[:-1], lambda x: x.mean()])
def test_a_trunk_must_give_one_tensor_with_the_batch_first(output):
    with pytest.raises(TypeError, match="one tensor whose first axis is the batch"):
        features(Scenes(), By(output))


@pytest.mark.parametrize("inner", [".", "inner/most"])
def test_a_file_in_place_of_a_cache_is_refused_before_any_image_is_read(tmp_path, inner):
    (tmp_path / "taken").write_bytes(b"of the user")
    with pytest.raises(NotADirectoryError, match=r"cache must be a folder, .*taken is a file; give another path"):
        features(["nowhere/1.png"], cache=tmp_path / "taken" / inner)
    assert (tmp_path / "taken").read_bytes() == b"of the user"


def test_a_bar_is_shown_when_asked_for(cache, capsys):
    images = np.zeros((3, 3, 16, 16), dtype=np.uint8)
    for verbose, shown in ((0, False), (1, True)):
        features_of(images, nn.AvgPool2d(4), size=16, device="cpu", verbose=verbose)
        assert ("features: 100%" in capsys.readouterr().err) == shown
