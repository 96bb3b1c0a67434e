"""Downloads from a server on this machine: whole and checked, or not there at all."""

import hashlib
import http.server
import threading
from dataclasses import replace

import pytest

from heterophony.data import DataError
from heterophony.data.download import download, download_entry, fetch
from heterophony.data.sources import KNOWN_SETS, File

GOOD = b"good data " * 5000
MD5 = hashlib.md5(GOOD).hexdigest()


class Handler(http.server.BaseHTTPRequestHandler):
    def do_GET(self):
        self.server.requests.append(self.path)
        if self.path.startswith("/missing"):
            self.send_error(404)
            return
        self.send_response(200)
        if not self.path.startswith("/unannounced"):
            self.send_header("Content-Length", str(len(GOOD)))
        self.end_headers()
        self.wfile.write(GOOD[:-7] if self.path.startswith(("/truncated", "/unannounced")) else GOOD)

    def log_message(self, *_):
        pass


@pytest.fixture
def server():
    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), Handler) as running:
        running.requests = []
        running.url = f"http://127.0.0.1:{running.server_address[1]}"
        thread = threading.Thread(target=running.serve_forever, kwargs={"poll_interval": 0.01})
        thread.start()
        yield running
        running.shutdown()
        thread.join()


@pytest.fixture(autouse=True)
def _no_proxy(monkeypatch):
    monkeypatch.setenv("no_proxy", "127.0.0.1")


def files(folder):
    return sorted(path.name for path in folder.rglob("*") if path.is_file())


def test_a_good_file_arrives(server, tmp_path):
    path = tmp_path / "new" / "folder" / "data.bin"
    assert fetch(f"{server.url}/good", path, MD5) == path
    assert path.read_bytes() == GOOD
    assert files(tmp_path) == ["data.bin"]


@pytest.mark.parametrize(
    ("page", "md5", "text"),
    [
        ("good", "0" * 32, "wrong checksum"),
        ("truncated", MD5, "broke off after 49993 of 50000 bytes"),
        ("unannounced", MD5, "wrong checksum"),
        ("missing", MD5, "answers 404 Not Found"),
    ],
)
def test_a_bad_file_leaves_no_trace(server, tmp_path, page, md5, text):
    with pytest.raises(DataError, match=text) as caught:
        fetch(f"{server.url}/{page}", tmp_path / "data.bin", md5)
    assert f"{server.url}/{page}" in str(caught.value)
    assert "\n" not in str(caught.value)
    assert files(tmp_path) == []


def test_a_bad_file_does_not_replace_an_older_one(server, tmp_path):
    (tmp_path / "data.bin").write_bytes(b"older")
    with pytest.raises(DataError):
        fetch(f"{server.url}/truncated", tmp_path / "data.bin", MD5)
    assert (tmp_path / "data.bin").read_bytes() == b"older"


def test_a_file_over_the_limit_is_given_up(server, tmp_path):
    with pytest.raises(DataError, match="larger than 1000 bytes"):
        fetch(f"{server.url}/good", tmp_path / "data.bin", MD5, limit=1000)
    assert files(tmp_path) == []


def test_nobody_listens(server, tmp_path):
    server.shutdown()
    server.server_close()
    with pytest.raises(DataError, match="cannot be downloaded"):
        fetch(f"{server.url}/good", tmp_path / "data.bin", MD5, timeout=2)


def test_only_http_is_fetched(tmp_path):
    with pytest.raises(DataError, match="not an http address"):
        fetch((tmp_path / "x").as_uri(), tmp_path / "data.bin", MD5)


def test_a_set_is_fetched_once(server, tmp_path):
    official = tuple(File(name, MD5, f"{server.url}/{name}") for name in ("train_32x32.mat", "test_32x32.mat"))
    entry = replace(KNOWN_SETS["svhn"], files=official)
    fetched = download_entry(entry, tmp_path)
    assert fetched == [tmp_path / "svhn" / file.name for file in official]
    assert download_entry(entry, tmp_path) == []
    (tmp_path / "svhn" / "test_32x32.mat").unlink()
    assert [path.name for path in download_entry(entry, tmp_path)] == ["test_32x32.mat"]
    assert server.requests == ["/train_32x32.mat", "/test_32x32.mat", "/test_32x32.mat"]


def test_sets_without_an_address_say_so(tmp_path):
    for name in ("pacs/photo", "syn", "office-home/art"):
        with pytest.raises(DataError, match="no address to download from"):
            download(name, tmp_path)
    assert files(tmp_path) == []
