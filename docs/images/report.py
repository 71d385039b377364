"""Takes the screenshot of docs/report.md, the top of a report in Chromium: python docs/images/report.py"""

from __future__ import annotations

import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

FOLDER = Path(__file__).parent
EXAMPLES = FOLDER.parents[1] / "examples"
COVERWELL = (sys.executable, "-m", "coverwell")
CHROMIUM = ("chromium", "--headless", "--no-sandbox", "--disable-gpu", "--hide-scrollbars")
SIZE = "1100,1620"  # down to the end of the curve over levels


def main() -> None:
    """Fit the flats of the examples at several levels, write their report and take a screenshot."""
    with tempfile.TemporaryDirectory() as folder:
        for name in ("flats.csv", "flats_new.csv"):
            shutil.copy(EXAMPLES / name, folder)
        levels = [word for level in (0.5, 0.7, 0.8, 0.9, 0.95) for word in ("--coverage", str(level))]
        fit = [*COVERWELL, "fit", "flats.csv", "--target", "rent", "--group", "building", *levels]
        subprocess.run([*fit, "--out", "rent.safetensors"], cwd=folder, check=True)
        options = ["rent.safetensors", "flats_new.csv", "--coverage", "0.9", "--out", "report.html"]
        subprocess.run([*COVERWELL, "report", *options], cwd=folder, check=True)
        shot = ["--virtual-time-budget=5000", f"--window-size={SIZE}", "--screenshot=report.png", "report.html"]
        subprocess.run([*CHROMIUM, *shot], cwd=folder, check=True, capture_output=True)
        shutil.copy(Path(folder) / "report.png", FOLDER)
    print(f"wrote {FOLDER.name}/report.png")


if __name__ == "__main__":
    main()
