"""Draws the plot of docs/forecasting.md with the code of that page: python docs/images/forecast.py"""

from __future__ import annotations

import os
import re
import shutil
import tempfile
from pathlib import Path

FOLDER = Path(__file__).parent
PAGE, IMAGE = FOLDER.parent / "forecasting.md", "forecast.png"


def main() -> None:
    """Run the blocks of the page in a folder of their own, up to the one that saves the plot, and keep it."""
    page = PAGE.read_text()
    with tempfile.TemporaryDirectory() as folder:
        os.chdir(folder)
        namespace: dict[str, object] = {}
        for block in re.findall(r"^```python\n(.*?)^```", page, re.MULTILINE | re.DOTALL):
            exec(block, namespace)  # code of our own page
            if Path(IMAGE).exists():
                break
        shutil.copy(IMAGE, FOLDER)
        os.chdir(FOLDER)
    print(f"wrote {FOLDER.name}/{IMAGE}")


if __name__ == "__main__":
    main()
