"""The fetcher against a server in this process, which can cut off, refuse, forget ranges and change its files."""

import gzip
import hashlib
import http.server
import io
import os
import threading
from collections.abc import Iterator
from dataclasses import dataclass, field
from http.client import HTTPMessage
from pathlib import Path
from urllib.request import Request

import pytest

from simfl.data.idx import MNIST_FILES
from simfl.downloads.fetch import _Redirects, _RefusedError, fetch
from simfl.downloads.sources import SOURCES, RemoteFile, Source
from simfl.errors import DataError

CONTENT = bytes(range(256)) * 4000  # about 1 MB: several chunks


def sha256(content: bytes) -> str:
    return hashlib.sha256(content).hexdigest()


@dataclass
class Site:
    """What the server gives out; tests change it as they go."""

    url: str = ""
    content: bytes = CONTENT
    etag: str | None = '"v1"'
    ranges: bool = True
    cuts: list[int] = field(default_factory=list)  # bytes to send before hanging up, one per request
    statuses: list[int] = field(default_factory=list)  # HTTP errors to answer with, one per request
    asked: list[str | None] = field(default_factory=list)  # the Range header of each request
    length: bool = True  # whether the server says how long the file is
    redirect: str = ""  # where /elsewhere leads


@pytest.fixture
def site() -> Iterator[Site]:
    site = Site()

    class Handler(http.server.BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            site.asked.append(self.headers.get("Range"))
            if site.redirect and self.path == "/elsewhere":
                self.send_response(302)
                self.send_header("Location", site.redirect)
                return self.end_headers()
            if self.path != "/file":
                return self.send_error(404)
            if site.statuses:
                return self.send_error(site.statuses.pop(0))
            start = 0
            total = len(site.content)
            fresh = self.headers.get("If-Range") in (None, site.etag)
            if site.ranges and fresh and (wanted := self.headers.get("Range")):
                start = int(wanted.removeprefix("bytes=").removesuffix("-"))
                if start >= total:
                    self.send_response(416)
                    self.send_header("Content-Range", f"bytes */{total}")
                    self.send_header("Content-Length", "0")
                    return self.end_headers()
                self.send_response(206)
                self.send_header("Content-Range", f"bytes {start}-{total - 1}/{total}")
            else:
                self.send_response(200)
            if site.length:
                self.send_header("Content-Length", str(total - start))
            if site.etag:
                self.send_header("ETag", site.etag)
            self.end_headers()
            body = site.content[start:]
            self.wfile.write(body[: site.cuts.pop(0)] if site.cuts else body)
            return None

        def log_message(self, *_: object) -> None:
            """Keep the test output clean."""

    server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01})
    thread.start()
    site.url = f"http://127.0.0.1:{server.server_address[1]}/file"
    yield site
    server.shutdown()
    thread.join()
    server.server_close()


def source(*urls: str, path: str = "libsvm/set", **checksums) -> Source:
    return Source("set", "a set", (RemoteFile(path, urls, **checksums),))


def get(root: Path, wanted: Source, attempts: int = 1, **options) -> Path:
    return fetch(wanted, root, attempts=attempts, wait_s=0.0, timeout_s=10.0, **options)[0]


def leftovers(root: Path) -> list[str]:
    return sorted(path.name for path in (root / "libsvm").iterdir())


def test_a_whole_file_is_downloaded_with_progress(tmp_path: Path, site: Site) -> None:
    seen: list[tuple[str, int, int | None]] = []
    path = get(
        tmp_path / "new" / "root", source(site.url, sha256=sha256(CONTENT)), progress=lambda *news: seen.append(news)
    )
    assert path == tmp_path / "new" / "root" / "libsvm" / "set"
    assert path.read_bytes() == CONTENT
    assert leftovers(tmp_path / "new" / "root") == ["set"]
    assert seen[0] == ("set", 0, len(CONTENT))
    assert seen[-1] == ("set", len(CONTENT), len(CONTENT))
    assert len(seen) > 3
    assert [done for _, done, _ in seen] == sorted(done for _, done, _ in seen)


def test_a_correct_file_is_not_downloaded_again(tmp_path: Path, site: Site) -> None:
    wanted = source(site.url, sha256=sha256(CONTENT))
    get(tmp_path, wanted)
    seen: list[tuple[str, int, int | None]] = []
    get(tmp_path, wanted, progress=lambda *news: seen.append(news))
    assert len(site.asked) == 1
    assert seen == [("set", len(CONTENT), len(CONTENT))]


@pytest.mark.parametrize("cuts", [[300_000], [300_000, 0, 400_000], [1]])
def test_a_broken_transfer_is_resumed(tmp_path: Path, site: Site, cuts: list[int]) -> None:
    site.cuts = list(cuts)
    path = get(tmp_path, source(site.url, sha256=sha256(CONTENT)), attempts=4)
    assert path.read_bytes() == CONTENT
    assert site.asked == [None, *(f"bytes={sum(cuts[: i + 1])}-" for i in range(len(cuts)))]


def test_a_later_run_resumes_a_transfer(tmp_path: Path, site: Site) -> None:
    site.cuts = [500_000]
    wanted = source(site.url)
    with pytest.raises(DataError, match=r"broke off after 500000 of 1024000 bytes; run the same again to go on"):
        get(tmp_path, wanted)
    assert leftovers(tmp_path) == ["set.part", "set.part.from"]
    seen: list[int] = []
    assert get(tmp_path, wanted, progress=lambda _, done, __: seen.append(done)).read_bytes() == CONTENT
    assert site.asked == [None, "bytes=500000-"]
    assert seen[0] == 500_000
    assert leftovers(tmp_path) == ["set", "set.sha256"]


def test_a_file_that_changed_meanwhile_starts_over(tmp_path: Path, site: Site) -> None:
    site.cuts = [500_000]
    with pytest.raises(DataError, match="broke off"):
        get(tmp_path, source(site.url))
    site.content, site.etag = CONTENT[::-1], '"v2"'
    assert get(tmp_path, source(site.url)).read_bytes() == CONTENT[::-1]


@pytest.mark.parametrize("known", [True, False])
def test_without_a_validator_only_a_checksum_allows_resuming(tmp_path: Path, site: Site, known: bool) -> None:
    site.cuts, site.etag = [500_000], None
    path = get(tmp_path, source(site.url, **({"sha256": sha256(CONTENT)} if known else {})), attempts=2)
    assert path.read_bytes() == CONTENT
    assert site.asked[1] == ("bytes=500000-" if known else None)


def test_a_server_without_ranges_sends_the_whole_file_again(tmp_path: Path, site: Site) -> None:
    site.cuts, site.ranges = [500_000], False
    assert get(tmp_path, source(site.url), attempts=2).read_bytes() == CONTENT


def test_a_complete_part_is_only_renamed(tmp_path: Path, site: Site) -> None:
    site.cuts = [len(CONTENT) - 1]
    with pytest.raises(DataError, match="broke off"):
        get(tmp_path, source(site.url))
    with (tmp_path / "libsvm" / "set.part").open("ab") as part:
        part.write(CONTENT[-1:])
    assert get(tmp_path, source(site.url)).read_bytes() == CONTENT
    assert site.asked == [None, f"bytes={len(CONTENT)}-"]


def test_a_part_that_is_too_long_is_dropped(tmp_path: Path, site: Site) -> None:
    site.cuts = [1000]
    with pytest.raises(DataError, match="broke off"):
        get(tmp_path, source(site.url))
    (tmp_path / "libsvm" / "set.part").write_bytes(CONTENT + b"more")
    assert get(tmp_path, source(site.url), attempts=2).read_bytes() == CONTENT


def test_a_file_with_a_wrong_checksum_is_removed(tmp_path: Path, site: Site) -> None:
    with pytest.raises(DataError) as caught:
        get(tmp_path, source(site.url, sha256="0" * 64))
    part = tmp_path / "libsvm" / "set.part"
    assert str(caught.value) == (
        f"{part}: sha256: expected {'0' * 64}, found {sha256(CONTENT)}; it was removed; fetch it again"
    )
    assert leftovers(tmp_path) == []


@pytest.mark.parametrize("level", [1, 9])
def test_the_checksum_of_the_content_holds_for_any_compression(tmp_path: Path, site: Site, level: int) -> None:
    site.content = gzip.compress(CONTENT, level)
    wanted = source(site.url, path="mnist/set.gz", content_sha256=sha256(CONTENT))
    assert gzip.decompress(get(tmp_path, wanted).read_bytes()) == CONTENT
    assert get(tmp_path, wanted).exists()
    site.content = site.content[:-100]
    with pytest.raises(DataError, match=r"sha256 of the content: expected .*, found no readable .gz file; it was"):
        get(tmp_path / "other", wanted)


def test_the_first_checksum_is_stored_and_checked_later(tmp_path: Path, site: Site) -> None:
    path = get(tmp_path, source(site.url))
    record = tmp_path / "libsvm" / "set.sha256"
    assert record.read_text() == f"{sha256(CONTENT)}  set\n"
    assert get(tmp_path, source(site.url)) == path
    path.write_bytes(CONTENT[:-1])
    with pytest.raises(DataError, match=rf"^{path}: sha256 in {record} .*; delete {path} and fetch it again$"):
        get(tmp_path, source(site.url))
    path.unlink()
    site.content = b"another version"
    with pytest.raises(DataError, match=rf"sha256 in {record} \(delete that if it is out of date\): expected"):
        get(tmp_path, source(site.url))
    record.unlink()
    assert get(tmp_path, source(site.url)).read_bytes() == b"another version"


def test_a_file_placed_by_hand_is_kept(tmp_path: Path, site: Site) -> None:
    (tmp_path / "libsvm").mkdir()
    (tmp_path / "libsvm" / "set").write_bytes(b"mine")
    assert get(tmp_path, source(site.url)).read_bytes() == b"mine"
    assert site.asked == []
    assert leftovers(tmp_path) == ["set"]


def test_a_missing_file_is_not_tried_twice(tmp_path: Path, site: Site) -> None:
    url = site.url.replace("/file", "/elsewhere")
    with pytest.raises(DataError) as caught:
        get(tmp_path, source(url), attempts=3)
    assert str(caught.value) == (f"{url}: HTTP 404 Not Found; put the file at {tmp_path / 'libsvm' / 'set'} by hand")
    assert len(site.asked) == 1
    assert leftovers(tmp_path) == []


def test_the_next_mirror_is_tried(tmp_path: Path, site: Site) -> None:
    mirrors = source(site.url.replace("/file", "/elsewhere"), "ftp://127.0.0.1/file", site.url)
    assert get(tmp_path, mirrors).read_bytes() == CONTENT


def test_the_next_mirror_is_tried_after_wrong_content(tmp_path: Path, site: Site) -> None:
    other = f"{site.url}?other"  # which the server does not know
    with pytest.raises(DataError, match=r"sha256: expected .*; it was removed; fetch it again; .*HTTP 404 Not Found"):
        get(tmp_path, source(site.url, other, sha256="0" * 64))
    assert len(site.asked) == 2
    assert leftovers(tmp_path) == []


@pytest.mark.parametrize("known", [True, False])
def test_a_body_of_unknown_length_needs_a_checksum(tmp_path: Path, site: Site, known: bool) -> None:
    site.length, site.cuts = False, [1000]
    wanted = source(site.url, **({"sha256": sha256(CONTENT)} if known else {}))
    message = "sha256: expected" if known else "the server does not say how long the file is, and no checksum is known"
    with pytest.raises(DataError, match=message):
        get(tmp_path, wanted)
    assert not (tmp_path / "libsvm" / "set").exists()
    if known:
        assert get(tmp_path, wanted).read_bytes() == CONTENT


@pytest.mark.parametrize("length", [True, False])
def test_a_transfer_ends_at_the_largest_size(tmp_path: Path, site: Site, length: bool) -> None:
    site.length = length
    wanted = source(site.url, sha256=sha256(CONTENT), most_bytes=300_000)
    with pytest.raises(DataError, match=r"expected at most 300,000 bytes, found [\d,]+ or more; put the file at"):
        get(tmp_path, wanted)
    assert leftovers(tmp_path) == []


def test_a_slow_transfer_ends_at_the_time_limit(tmp_path: Path, site: Site) -> None:
    with pytest.raises(DataError, match=r"it takes longer than 0 s \([\d,]+ bytes so far\); run the same again"):
        get(tmp_path, source(site.url), total_s=0.0)


def test_redirects_lead_to_http_and_https_only(tmp_path: Path, site: Site) -> None:
    site.redirect = "ftp://127.0.0.1:9/file"
    elsewhere = source(site.url.replace("/file", "/elsewhere"))
    with pytest.raises(DataError, match=r"it redirects to ftp://127.0.0.1:9/file, expected https:// or http://; put"):
        get(tmp_path, elsewhere)
    site.redirect = "file:///etc/hostname"
    with pytest.raises(DataError, match=r"HTTP 302 .*'file:///etc/hostname' is not allowed; put the file at"):
        get(tmp_path, elsewhere)
    site.redirect = site.url
    assert get(tmp_path, elsewhere).read_bytes() == CONTENT
    with pytest.raises(_RefusedError, match=r"it redirects to http://x/y, expected https://$"):
        _Redirects().redirect_request(Request("https://x/"), io.BytesIO(), 302, "Found", HTTPMessage(), "http://x/y")


def test_a_download_without_a_published_checksum_is_reported(tmp_path: Path, site: Site) -> None:
    lines: list[str] = []
    get(tmp_path, source(site.url), tell=lines.append)
    get(tmp_path, source(site.url), tell=lines.append)
    get(tmp_path / "other", source(site.url, sha256=sha256(CONTENT)), tell=lines.append)
    (line,) = lines
    assert line.endswith(
        "set: no checksum is published for it: this download was trusted, and set.sha256 holds from now on"
    )


def test_a_busy_server_is_asked_again(tmp_path: Path, site: Site) -> None:
    site.statuses = [503, 429]
    assert get(tmp_path, source(site.url), attempts=3).read_bytes() == CONTENT
    site.statuses = [500, 500]
    with pytest.raises(DataError, match=r"HTTP 500 Internal Server Error; put the file at .* by hand$"):
        get(tmp_path / "other", source(site.url), attempts=2)


def test_a_refused_connection_is_one_line(tmp_path: Path) -> None:
    with pytest.raises(DataError, match=r"the connection failed \(.*refused\)") as caught:
        get(tmp_path, source("http://127.0.0.1:9/file"), attempts=2)
    assert "\n" not in str(caught.value)


def test_a_folder_that_cannot_be_made_is_one_line(tmp_path: Path, site: Site) -> None:
    (tmp_path / "libsvm").write_text("a file where the folder should be")
    with pytest.raises(DataError, match=r"cannot be written or read \(.*\); choose another folder with SIMFL_DATA"):
        get(tmp_path, source(site.url))


def test_the_sources_have_addresses_and_checksums() -> None:
    images = {"mnist", "fashion_mnist", "emnist", "cifar10", "cifar100", "svhn"}
    assert images | {"a9a", "w8a", "phishing", "ijcnn1", "covtype.binary", "usps"} == set(SOURCES)
    for name, known in SOURCES.items():
        assert known.name == name
        for remote in known.files:
            assert all(url.startswith("https://") for url in remote.urls) or remote.sha256
            assert remote.path.split("/")[0] in {*images, "libsvm"}
            for checksum in (remote.sha256, remote.content_sha256):
                assert checksum is None or len(bytes.fromhex(checksum)) == 32


@pytest.mark.skipif("SIMFL_DATA" not in os.environ, reason="SIMFL_DATA names no folder of data sets")
def test_the_published_checksums_hold_for_real_files() -> None:
    """An existing MNIST counts as fetched: no server is asked."""
    paths = fetch(SOURCES["mnist"], os.environ["SIMFL_DATA"])
    assert [path.name for path in paths] == [f"{name}.gz" for name in MNIST_FILES]


def test_every_fetched_set_can_be_named_in_a_scenario() -> None:
    from simfl.data.libsvm import FETCHABLE

    assert set(FETCHABLE) == {name for name in SOURCES if SOURCES[name].files[0].path.startswith("libsvm/")}


def test_data_sets_are_listed_and_fetched(simfl_, monkeypatch, tmp_path):
    def fetched(source, root, progress, tell):
        assert progress is None
        return [root / source.name / "file.gz"]

    monkeypatch.setattr("simfl.downloads.fetch.fetch", fetched)
    out = simfl_.printed("data", "list")
    assert all(name in out for name in SOURCES)
    out = simfl_.printed("data", "fetch", "mnist", "a9a", "--to", tmp_path / "sets")
    assert out.splitlines() == [
        str(tmp_path / "sets" / "mnist" / "file.gz"),
        str(tmp_path / "sets" / "a9a" / "file.gz"),
        f"scenarios find it with SIMFL_DATA={tmp_path / 'sets'}",
    ]
    code, _, err = simfl_("data", "fetch", "mnist")
    assert (code, err) == (
        2,
        "data fetch: expected a folder to download to; set SIMFL_DATA=FOLDER, or give --to FOLDER\n",
    )
    monkeypatch.setenv("SIMFL_DATA", str(tmp_path))
    assert simfl_("data", "fetch", "mnist")[1] == f"{tmp_path / 'mnist' / 'file.gz'}\n"
    err = simfl_.refused("data", "fetch", "mnsit")
    assert err.endswith("found 'mnsit'; did you mean 'mnist'?\n")
