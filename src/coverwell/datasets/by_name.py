"""Any data set by its name, whatever its kind."""

from coverwell.datasets.boxes import BoxedImages
from coverwell.datasets.images import image_names, load_images
from coverwell.datasets.series import Series, load_series, series_names
from coverwell.datasets.store import known_name
from coverwell.datasets.tables import Dataset, load_table, names


def load(name: str) -> Dataset | Series | BoxedImages:
    """The data set of that name: a table, a series, or images with boxes.

    It is what `load_table`, `load_series` or `load_images` gives by default. Use these where a type checker should know
    the kind, and `load_images` to choose shards, or what happens to boxes past the edge of their images.

    Parameters
    ----------
    name : str
        One of `names` (tables), `series_names` or `image_names`; case does not matter, and underscores or hyphens may
        stand for spaces.

    Returns
    -------
    Dataset, Series or BoxedImages
        The data, and what to cite.

    Raises
    ------
    ValueError
        If the name is unknown.
    DatasetNotFoundError
        If the files are nowhere; the message says where they were looked for.
    DatasetChecksumError
        If a file holds something else than the published content.

    Warns
    -----
    BoxOutsideImageWarning
        If boxes ran past the edge of their images and were cut there, as 30 of ``"cub"``.

    Examples
    --------
    >>> from coverwell import datasets
    >>> table = datasets.load("auto_mpg")  # doctest: +SKIP
    >>> table.X.shape  # doctest: +SKIP
    (392, 7)
    >>> birds = datasets.load("cub")  # doctest: +SKIP
    >>> birds.images[0].shape, birds.boxes[0]  # doctest: +SKIP
    ((160, 239, 3), array([ 60.,  27., 325., 304.]))
    >>> datasets.load("autos")  # doctest: +ELLIPSIS
    Traceback (most recent call last):
    ...
    ValueError: name must be one of crime, red wine, ..., air quality, cub; got 'autos'
    """
    known = known_name(name, (*names(), *series_names(), *image_names()))
    if known in names():
        return load_table(known)
    return load_series(known) if known in series_names() else load_images(known)
