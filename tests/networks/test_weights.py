"""The weights are the published file, or there is an error that says where to put it."""

import hashlib
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from threading import Thread

import pytest

from coverwell.networks import imagenet_weights, resnet

NAME = "resnet18-f37072fd.pth"
CONTENT = bytes(range(256)) * 10_000  # stands for the 45 MB
NOWHERE = f"http://127.0.0.1:9/{NAME}"  # the discard port: nobody answers
SHA256, ADDRESS = resnet.SHA256, resnet.ADDRESS


@pytest.fixture(autouse=True)
def cache(tmp_path, monkeypatch):
    """An empty cache, no data folder, no network; the published content is a made-up one."""
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    monkeypatch.delenv("COVERWELL_DATA", raising=False)
    monkeypatch.setenv("no_proxy", "127.0.0.1")
    monkeypatch.setattr(resnet, "SHA256", hashlib.sha256(CONTENT).hexdigest())
    monkeypatch.setattr(resnet, "ADDRESS", NOWHERE)
    return tmp_path / "cache" / "coverwell"


class Breaks(BaseHTTPRequestHandler):
    """Announces the whole file and hangs up after half of it."""

    def do_GET(self):
        self.send_response(200)
        self.send_header("Content-Length", str(len(CONTENT)))
        self.end_headers()
        self.wfile.write(CONTENT[: len(CONTENT) // 2])

    def log_message(self, format, *args):
        """Silence: the test's output is not the server's log."""


@pytest.fixture
def breaking_address():
    """Address of a server on this machine that never gives a whole file."""
    with ThreadingHTTPServer(("127.0.0.1", 0), Breaks) as server:
        thread = Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01})
        thread.start()
        yield f"http://127.0.0.1:{server.server_port}/{NAME}"
        server.shutdown()
        thread.join()


def test_the_sha256_begins_as_torchvision_says_in_the_name_of_the_file():
    assert len(SHA256) == 64
    assert resnet.FILE == NAME == f"resnet18-{SHA256[:8]}.pth"
    assert f"https://download.pytorch.org/models/{NAME}" == ADDRESS


@pytest.mark.parametrize("inner", ["", "weights"])
@pytest.mark.parametrize("given", [True, False])
def test_the_file_is_found_in_the_data_folder_and_in_the_cache(cache, tmp_path, monkeypatch, inner, given):
    if given:
        monkeypatch.setenv("COVERWELL_DATA", str(tmp_path / "data"))
    path = (tmp_path / "data" if given else cache) / inner / NAME
    path.parent.mkdir(parents=True)
    path.write_bytes(CONTENT)
    assert imagenet_weights() == path


def test_a_download_is_kept_whole_in_the_cache_and_not_repeated(cache, tmp_path, monkeypatch):
    (tmp_path / "source").write_bytes(CONTENT)
    monkeypatch.setattr(resnet, "ADDRESS", (tmp_path / "source").as_uri())
    assert imagenet_weights() == cache / "weights" / NAME
    (tmp_path / "source").unlink()
    assert imagenet_weights().read_bytes() == CONTENT


def test_a_changed_file_is_refused_by_name_and_stays(cache):
    path = cache / NAME
    path.parent.mkdir(parents=True)
    path.write_bytes(CONTENT[:-1])
    with pytest.raises(ValueError, match=rf"{path} is not the published file: .* Delete or replace it"):
        imagenet_weights()
    assert path.read_bytes() == CONTENT[:-1]


def test_a_download_of_something_else_leaves_nothing(cache, tmp_path, monkeypatch):
    (tmp_path / "source").write_bytes(b"please log in")
    monkeypatch.setattr(resnet, "ADDRESS", (tmp_path / "source").as_uri())
    with pytest.raises(ValueError, match=r"source is not the published file: .* Nothing was kept"):
        imagenet_weights()
    assert not [path for path in cache.rglob("*") if path.is_file()]


def test_an_interrupted_download_leaves_nothing(cache, breaking_address, monkeypatch):
    monkeypatch.setattr(resnet, "ADDRESS", breaking_address)
    with pytest.raises(FileNotFoundError, match=f"{len(CONTENT) // 2} bytes read, {len(CONTENT) // 2} more expected"):
        imagenet_weights()
    assert not [path for path in cache.rglob("*") if path.is_file()]


def test_without_a_network_the_error_says_where_to_put_the_file(cache):
    with pytest.raises(FileNotFoundError) as missing:
        imagenet_weights()
    parts = [NAME, NOWHERE, str(cache), str(cache / "weights"), "Put the file into one of these", "COVERWELL_DATA"]
    assert [part for part in parts if part not in str(missing.value)] == []
