"""Files come from the first place that has them, are checked, and never lie half written."""

import gzip
import hashlib
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from threading import Thread

import pytest

from reproduction.data import store

CONTENT = b"1 2 3\n4 5 6\n" * 100_000  # more than one chunk
OTHER = b"something else"
NOWHERE = "http://127.0.0.1:9/numbers.data"  # the discard port: nobody answers


def sha256(content):
    return hashlib.sha256(content).hexdigest()


FILE = {"file": "numbers.data", "sha256": sha256(CONTENT), "address": NOWHERE}


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


def read(**changes):
    """The content of a file that is no package's."""
    content, layout = store.read({**FILE, **changes}, "regression")
    assert layout == {}
    return content


def files_under(folder):
    return [path for path in folder.rglob("*") if path.is_file()]


@pytest.mark.parametrize(
    "place", ["numbers.data", "numbers.data.gz", "regression/numbers.data", "regression/numbers.data.gz"]
)
def test_a_file_is_found_in_the_folder_or_its_part_plain_or_compressed(folder, cache, place):
    put(folder / place, CONTENT)
    put(cache / "numbers.data", OTHER)  # which comes later
    assert read() == CONTENT


def test_the_cache_is_searched_without_a_folder_and_before_a_package(cache, copy, monkeypatch):
    put(cache / "regression" / "numbers.data", CONTENT)
    assert read() == read(copy=copy) == CONTENT
    monkeypatch.delenv("XDG_CACHE_HOME")
    assert store.cache_folder() == Path.home() / ".cache" / "coverwell"


def test_other_content_and_a_truncated_gzip_file_in_the_folder_are_refused_by_name(folder):
    path = put(folder / "numbers.data", OTHER)
    with pytest.raises(store.ChecksumError, match=r"numbers\.data is not the published file") as refused:
        read()
    assert str(path) in str(refused.value)
    assert sha256(OTHER) in str(refused.value)
    path.unlink()
    path = put(folder / "numbers.data.gz", CONTENT)
    path.write_bytes(path.read_bytes()[:-100])
    with pytest.raises(store.ChecksumError, match="not a whole gzip file"):
        read()


def test_a_packaged_copy_comes_with_its_layout_and_its_package_is_not_imported(copy):
    assert store.read({**FILE, "copy": copy}, "regression") == (CONTENT.replace(b" ", b","), copy)


def test_a_package_with_other_data_is_passed_over_with_a_warning(copy, address):
    with pytest.warns(store.PackagedDataWarning, match="carrier_of_numbers is not used"):
        assert read(address=f"{address}/whole", copy={**copy, "sha256": sha256(OTHER)}) == CONTENT


@pytest.mark.parametrize("change", [{"path": "data/gone.csv"}, {"package": "never_installed"}])
def test_a_package_without_the_file_is_passed_over(copy, address, change):
    assert read(address=f"{address}/whole", copy={**copy, **change}) == CONTENT


def test_a_download_is_kept_in_the_cache_and_not_repeated(address, cache):
    assert read(address=f"{address}/whole") == CONTENT
    assert files_under(cache) == [cache / "regression" / "numbers.data"]
    assert read() == CONTENT  # though its address is now dead


@pytest.mark.parametrize(
    ("page", "error", "message"),
    [
        ("other", store.ChecksumError, "/other is not the published file"),
        ("cut", FileNotFoundError, f"IncompleteRead.{len(CONTENT) // 2} bytes read"),
    ],
)
def test_a_download_with_other_content_or_a_broken_one_leaves_nothing(address, cache, page, error, message):
    with pytest.raises(error, match=message):
        read(address=f"{address}/{page}")
    assert files_under(cache) == []


@pytest.mark.parametrize("dead", ["/gone", None])
def test_a_missing_file_names_itself_the_folders_the_packages_and_the_address(folder, cache, address, dead):
    asked = address + dead if dead else NOWHERE
    copy = {"package": "never_installed", "path": "", "sha256": ""}
    with pytest.raises(FileNotFoundError) as missing:
        read(by_hand="join the parts.", address=asked, copy=copy)
    named = ["numbers.data", str(folder), str(folder / "regression"), str(cache), "never_installed", asked]
    for part in [*named, "COVERWELL_DATA", "coverwell[data]", "How to get numbers.data: join"]:
        assert part in str(missing.value)
    assert not cache.exists()


def test_case_blanks_underscores_and_hyphens_of_a_name_do_not_matter_and_unknown_ones_are_refused():
    for name in ("red wine", "Red_Wine", " RED-wine "):
        assert store.known_name(name, {"boston": 1, "red wine": 2}) == "red wine"
    with pytest.raises(ValueError, match="name must be one of boston, red wine; got 'Blue'"):
        store.known_name("Blue", ("boston", "red wine"))
