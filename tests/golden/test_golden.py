"""The numbers of version 0.1.0, kept: predictions, bounds and rounds of many small fits."""

import json

import numpy as np
import pytest

from coverwell import load
from coverwell.errors import ModelFileError
from tests.golden.configurations import (
    CONFIGURATIONS,
    FORECASTER_FILE,
    GOLDEN_FILES,
    MODEL_FILE,
    made_with,
    processor,
    run,
)

GOLDEN = json.loads(GOLDEN_FILES.get(processor(), GOLDEN_FILES["GenuineIntel"]).read_text())
MADE_WITH = GOLDEN.pop("made_with")
# Rounds are measured in float32, where the order of a sum shows.
RTOL, RTOL_OF_ROUNDS = 1e-10, 1e-5


def test_every_configuration_is_recorded():
    assert sorted(GOLDEN) == sorted(CONFIGURATIONS)


@pytest.mark.parametrize("name", CONFIGURATIONS)
def test_numbers_are_those_of_the_golden_file(name):
    if made_with() != MADE_WITH:
        pytest.skip(f"trained with {MADE_WITH}, whose bits {made_with()} need not give")
    numbers, golden = run(name), {key: np.array(values) for key, values in GOLDEN[name].items()}
    assert list(numbers) == list(golden), f"{name} has other quantities"
    differences = [difference(key, numbers[key], golden[key], golden["spread"].item()) for key in golden]
    found = [text for text in differences if text]
    if found:
        pytest.fail(f"{name} differs in {len(found)} of {len(golden)} quantities:\n" + "\n".join(found), pytrace=False)


def difference(key, numbers, golden, spread):
    """How a quantity differs from the golden file; "" if it does not."""
    tolerance = {"rtol": RTOL, "atol": 1e-12 * spread} if "rounds." not in key else {"rtol": RTOL_OF_ROUNDS}
    try:
        np.testing.assert_allclose(numbers, golden, verbose=False, **tolerance)
    except AssertionError as error:
        return f"{key}: {error}"
    return ""


@pytest.mark.parametrize("path", [MODEL_FILE, FORECASTER_FILE], ids=["model", "forecaster"])
def test_a_model_file_of_version_0_1_0_is_refused_with_a_way_out(path):
    message = r"has format \d, but coverwell .* reads \d; load it with the version that wrote it .*, or fit and save"
    with pytest.raises(ModelFileError, match=message) as caught:
        load(path)
    assert "\n" not in str(caught.value)
