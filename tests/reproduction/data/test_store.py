"""Files come from the first place that has them, are checked, and never lie half written."""

import gzip
import hashlib
from dataclasses import replace
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from threading import Thread

import pytest

from reproduction.data import store
from reproduction.data.store import DataFile

CONTENT = b"1 2 3\n4 5 6\n" * 100_000  # more than one chunk
OTHER = b"something else"
NOWHERE = "http://127.0.0.1:9/numbers.data"  # the discard port: nobody answers


def sha256(content):
    return hashlib.sha256(content).hexdigest()


FILE = DataFile("numbers.data", "regression", sha256(CONTENT), NOWHERE)


@pytest.fixture(autouse=True)
def cache(tmp_path, monkeypatch):
    """An empty cache, no data folder, and no proxy between the test and its own server."""
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    monkeypatch.delenv("COVERWELL_DATA", raising=False)
    monkeypatch.setenv("no_proxy", "127.0.0.1")
    return tmp_path / "cache" / "coverwell"


@pytest.fixture
def folder(tmp_path, monkeypatch):
    """The folder that COVERWELL_DATA names."""
    monkeypatch.setenv("COVERWELL_DATA", str(tmp_path / "data"))
    return tmp_path / "data"


class Answers(BaseHTTPRequestHandler):
    """/whole gives the content, /other a different one, /cut half of what it announced, the rest 404."""

    def do_GET(self):
        body = {"/whole": CONTENT, "/other": OTHER, "/cut": CONTENT[: len(CONTENT) // 2]}.get(self.path)
        self.send_response(404 if body is None else 200)
        self.send_header("Content-Length", str(len(CONTENT if self.path == "/cut" else body or b"")))
        self.end_headers()
        self.wfile.write(body or b"")

    def log_message(self, format: str, *args: object) -> None:
        """Silence: the test's output is not the server's log."""


@pytest.fixture(scope="module")
def address():
    """Address of a server on this machine."""
    with ThreadingHTTPServer(("127.0.0.1", 0), Answers) as server:
        thread = Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01})
        thread.start()
        yield f"http://127.0.0.1:{server.server_port}"
        server.shutdown()
        thread.join()


@pytest.fixture
def copy(tmp_path, monkeypatch):
    """The content, comma separated and compressed, inside a package that must not be imported."""
    inside = tmp_path / "packages" / "carrier_of_numbers" / "data"
    inside.mkdir(parents=True)
    (inside.parent / "__init__.py").write_text("raise RuntimeError('imported')")
    commas = CONTENT.replace(b" ", b",")
    (inside / "numbers.csv.gz").write_bytes(gzip.compress(commas))
    monkeypatch.syspath_prepend(tmp_path / "packages")
    about = {"package": "carrier_of_numbers", "path": "data/numbers.csv.gz", "sha256": sha256(commas)}
    return {**about, "separator": ","}


def put(path, content):
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(gzip.compress(content) if path.suffix == ".gz" else content)
    return path


def read(file):
    """The content of a file that is no package's."""
    content, layout = store.read(file)
    assert layout == {}
    return content


def files_under(folder):
    return [path for path in folder.rglob("*") if path.is_file()]


@pytest.mark.parametrize(
    "place", ["numbers.data", "numbers.data.gz", "regression/numbers.data", "regression/numbers.data.gz"]
)
def test_a_file_is_found_in_the_folder_or_its_part_plain_or_compressed(folder, place):
    put(folder / place, CONTENT)
    assert read(FILE) == CONTENT


def test_the_cache_is_searched_without_a_folder(cache):
    put(cache / "regression" / "numbers.data", CONTENT)
    assert read(FILE) == CONTENT


def test_the_cache_lies_in_the_home_folder_unless_told_otherwise(monkeypatch):
    monkeypatch.delenv("XDG_CACHE_HOME")
    assert store.cache_folder() == Path.home() / ".cache" / "coverwell"


def test_the_folder_comes_before_the_cache(folder, cache):
    put(folder / "numbers.data", CONTENT)
    put(cache / "numbers.data", OTHER)
    assert read(FILE) == CONTENT


def test_the_cache_comes_before_a_package(cache, copy):
    put(cache / "numbers.data", CONTENT)
    assert read(replace(FILE, copy=copy)) == CONTENT


def test_other_content_in_the_folder_is_refused_by_name(folder):
    path = put(folder / "numbers.data", OTHER)
    with pytest.raises(store.ChecksumError, match=r"numbers\.data is not the published file") as refused:
        store.read(FILE)
    assert str(path) in str(refused.value)
    assert sha256(OTHER) in str(refused.value)


def test_a_truncated_gzip_file_is_refused(folder):
    path = put(folder / "numbers.data.gz", CONTENT)
    path.write_bytes(path.read_bytes()[:-100])
    with pytest.raises(store.ChecksumError, match="not a whole gzip file"):
        store.read(FILE)


def test_a_packaged_copy_comes_with_its_layout_and_its_package_is_not_imported(copy):
    assert store.read(replace(FILE, copy=copy)) == (CONTENT.replace(b" ", b","), copy)


def test_a_package_with_other_data_is_passed_over_with_a_warning(copy, address):
    file = replace(FILE, address=f"{address}/whole", copy={**copy, "sha256": sha256(OTHER)})
    with pytest.warns(store.PackagedDataWarning, match="carrier_of_numbers is not used"):
        assert read(file) == CONTENT


@pytest.mark.parametrize("change", [{"path": "data/gone.csv"}, {"package": "never_installed"}])
def test_a_package_without_the_file_is_passed_over(copy, address, change):
    assert read(replace(FILE, address=f"{address}/whole", copy={**copy, **change})) == CONTENT


def test_a_download_is_kept_in_the_cache_and_not_repeated(address, cache):
    assert read(replace(FILE, address=f"{address}/whole")) == CONTENT
    assert files_under(cache) == [cache / "regression" / "numbers.data"]
    assert read(FILE) == CONTENT  # though its address is now dead


def test_a_download_with_other_content_is_refused_and_leaves_nothing(address, cache):
    with pytest.raises(store.ChecksumError, match="/other is not the published file"):
        store.read(replace(FILE, address=f"{address}/other"))
    assert files_under(cache) == []


def test_an_interrupted_download_leaves_nothing(address, cache):
    with pytest.raises(FileNotFoundError, match=f"IncompleteRead.{len(CONTENT) // 2} bytes read"):
        store.read(replace(FILE, address=f"{address}/cut"))
    assert files_under(cache) == []


@pytest.mark.parametrize("dead", ["/gone", None])
def test_a_missing_file_names_itself_the_folders_the_packages_and_the_address(folder, cache, address, dead):
    by_hand = {"by_hand": "join the parts."}
    file = replace(
        FILE,
        **by_hand,
        address=address + dead if dead else NOWHERE,
        copy={"package": "never_installed", "path": "", "sha256": ""},
    )
    with pytest.raises(FileNotFoundError) as missing:
        store.read(file)
    message = str(missing.value)
    told = ["numbers.data", str(folder), str(folder / "regression"), str(cache), "never_installed", file.address]
    assert all(
        part in message for part in [*told, "COVERWELL_DATA", "coverwell[data]", "How to get numbers.data: join"]
    )
    assert isinstance(missing.value, FileNotFoundError)
    assert not cache.exists()


@pytest.mark.parametrize("name", ["red wine", "Red_Wine", " RED-wine "])
def test_case_blanks_underscores_and_hyphens_of_a_name_do_not_matter(name):
    assert store.known_name(name, {"boston": 1, "red wine": 2}) == "red wine"


def test_an_unknown_name_is_refused_with_the_known_ones():
    with pytest.raises(ValueError, match="name must be one of boston, red wine; got 'Blue'"):
        store.known_name("Blue", ("boston", "red wine"))
