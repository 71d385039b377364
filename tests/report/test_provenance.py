"""What a report says about where it comes from."""

import re

import torch
from coverwell.report.provenance import Source, provenance_section

from coverwell._version import __version__


def test_without_files_the_model_the_versions_and_the_device_are_told(model):
    (table,) = provenance_section(Source(), model).blocks
    told = dict(table.rows)
    assert re.fullmatch(r"\d{4}-\d\d-\d\d \d\d:\d\d UTC", told["made"])
    assert told["model"] == "MatchedRegressor"
    assert f"coverwell {__version__}" in told["versions that made this report"]
    assert str(torch.__version__) in told["versions that made this report"]
    assert told["device"] in ("cpu", "cuda")
    assert not any("sha256" in name for name in told)
