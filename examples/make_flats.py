"""Makes flats.csv and flats_new.csv: made-up rents, in tables like those found in practice.

They have text, a date, missing values, an identifier, and several flats per building. Rents of large or unrenovated
flats vary more, so good intervals are wider there. Run it in this folder:

    python make_flats.py
"""

from __future__ import annotations

import csv
from pathlib import Path

import numpy as np

SEED = 6
N_BUILDINGS, N_FLATS, N_TRAINED = 500, 1500, 500
DISTRICTS = {"harbour": 1.15, "hill": 1.3, "north": 0.95, "old town": 1.2, "station": 0.85}
HEATING = {"district": 0.0, "gas": -0.2, "heat pump": 0.6, "oil": -0.6}
FIRST_DAY, N_DAYS = np.datetime64("2024-01-01"), 730
COLUMNS = (
    "id",
    "building",
    "district",
    "listed",
    "area",
    "rooms",
    "floor",
    "built",
    "heating",
    "balcony",
    "renovated",
    "rent",
)


def main() -> None:
    """Write both files next to this script: the later flats are the new ones."""
    rows = flats(np.random.default_rng(SEED))
    folder = Path(__file__).parent
    write(folder / "flats.csv", rows[:N_TRAINED])
    write(folder / "flats_new.csv", rows[N_TRAINED:])


def flats(rng: np.random.Generator) -> list[dict[str, object]]:
    """All flats, building by building; one building may be in both files."""
    sizes = rng.multinomial(N_FLATS - N_BUILDINGS, np.full(N_BUILDINGS, 1 / N_BUILDINGS)) + 1
    rows = [row for number, size in enumerate(sizes, start=1) for row in building(rng, f"B{number:03}", int(size))]
    return [{"id": f"F-{code:05}", **row} for code, row in zip(rng.permutation(90_000)[:N_FLATS], rows, strict=True)]


def building(rng: np.random.Generator, name: str, n_flats: int) -> list[dict[str, object]]:
    """The flats of one building, which share a district, a year, a heating and an effect that is not in the table."""
    district, heating = str(rng.choice(list(DISTRICTS))), str(rng.choice(list(HEATING)))
    built = int(rng.integers(1890, 2024))
    shared = {"building": name, "district": district, "heating": heating if rng.random() > 0.06 else ""}
    unseen = rng.normal(scale=0.4)
    base = 11 * DISTRICTS[district] + HEATING[heating] + 0.02 * (built - 1950) + unseen
    year = built if rng.random() > 0.12 else ""
    return [{**shared, "built": year, **flat(rng, base)} for _ in range(n_flats)]


def flat(rng: np.random.Generator, base: float) -> dict[str, object]:
    """One flat; `base` is what its building costs per square metre."""
    area, floor = round(float(rng.gamma(9, 8)) + 18, 1), int(rng.integers(0, 8))
    days = int(rng.integers(0, N_DAYS))
    balcony, renovated = bool(rng.random() < 0.45), bool(rng.random() < 0.3)
    per_metre = base + 12 / np.sqrt(area) + 0.08 * floor + 0.5 * balcony + 1.2 * renovated + 0.9 * days / N_DAYS
    noise = rng.normal(scale=0.25 if renovated else 0.9)
    return {
        "listed": str(FIRST_DAY + days),
        "area": area if rng.random() > 0.03 else "",
        "rooms": max(1, round(area / 26 + rng.normal(scale=0.4))),
        "floor": floor,
        "balcony": str(balcony).lower(),
        "renovated": ("yes" if renovated else "no") if rng.random() > 0.04 else "",
        "rent": round(area * (per_metre + noise)),
    }


def write(path: Path, rows: list[dict[str, object]]) -> None:
    with path.open("w", newline="", encoding="utf-8") as file:
        table = csv.DictWriter(file, COLUMNS, lineterminator="\n")
        table.writeheader()
        table.writerows(rows)


if __name__ == "__main__":
    main()
