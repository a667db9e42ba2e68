"""Download data sets, resume interrupted transfers, and verify checksums.

A download is written to NAME.part. NAME.part.from holds the address and the server's validator (ETag or date), so that
a later run requests only the rest (HTTP Range, If-Range; RFC 9110 sections 13 and 14). The file gets its final name
once it is complete and its sha256 is right; otherwise the next address is tried. If no checksum is published, the first
download is trusted, provided the server states its length. Its checksum is then stored in NAME.sha256 (the format of
`sha256sum`) and later downloads must match it.

Only http and https are used, redirects included, and https stays https. Size and time are limited.
"""

from __future__ import annotations

import errno
import hashlib
import http.client
import os
import re
import time
import urllib.error
import urllib.request
from collections.abc import Callable
from dataclasses import dataclass
from http.client import HTTPMessage
from pathlib import Path
from typing import IO

from simfl.data.files import BROKEN_STREAM, open_decompressed
from simfl.downloads.sources import RemoteFile, Source
from simfl.errors import DataError, printable

Progress = Callable[[str, int, int | None], None]
"""Called with the file name, the bytes received so far, and the total bytes if the server states them."""

_CHUNK_BYTES = 1 << 18
_LOCAL_ERRORS = {errno.ENOSPC, errno.EACCES, errno.EPERM, errno.EROFS, errno.EDQUOT, errno.EFBIG, errno.ENAMETOOLONG}


def fetch(
    source: Source,
    root: str | Path,
    progress: Progress | None = None,
    *,
    attempts: int = 4,
    wait_s: float = 1.0,
    timeout_s: float = 30.0,
    total_s: float = 3600.0,
    tell: Callable[[str], None] | None = None,
) -> list[Path]:
    """Download a data set and return its files; keep files whose checksum is right.

    `progress` is called as bytes arrive, `tell` with one line for each file without a published checksum. Each of the
    `attempts` per address resumes the previous one, after a pause of `wait_s` that doubles. `timeout_s` is the longest
    silence of a server, `total_s` the longest duration of one try.
    """
    paths = []
    for remote in source.files:
        target = Path(root).expanduser() / remote.path
        limits = attempts, wait_s, timeout_s, total_s
        download = _Download(remote, target, progress or (lambda *_: None), *limits, tell or (lambda _: None))
        try:
            if target.exists():
                download.verify(target, f"delete {target} and fetch it again")
                size = target.stat().st_size
                download.progress(target.name, size, size)
            else:
                target.parent.mkdir(parents=True, exist_ok=True)
                download.run()
        except OSError as error:
            raise DataError(
                f"{error.filename or target}: cannot be written or read ({error.strerror or error}); "
                f"choose another folder with SIMFL_DATA or free some space"
            ) from None
        paths.append(target)
    return paths


class _TransferError(Exception):
    """The transfer broke off or the server failed; another try may succeed."""


class _RefusedError(Exception):
    """This address does not provide the file."""


class _Redirects(urllib.request.HTTPRedirectHandler):
    """Follows redirects to http and https only, never from https to http."""

    def redirect_request(
        self, req: urllib.request.Request, fp: IO[bytes], code: int, msg: str, headers: HTTPMessage, newurl: str
    ) -> urllib.request.Request | None:
        allowed = ("https://",) if req.full_url.startswith("https://") else ("https://", "http://")
        if not newurl.lower().startswith(allowed):
            raise _RefusedError(f"it redirects to {printable(newurl[:200])}, expected {' or '.join(allowed)}")
        return super().redirect_request(req, fp, code, msg, headers, newurl)


_OPENER = urllib.request.build_opener(_Redirects)


@dataclass(frozen=True)
class _Download:
    remote: RemoteFile
    target: Path
    progress: Progress
    attempts: int
    wait_s: float
    timeout_s: float
    total_s: float
    tell: Callable[[str], None]

    @property
    def part(self) -> Path:
        return self.target.with_name(self.target.name + ".part")

    @property
    def origin(self) -> Path:
        """A file of two lines: the address of the part, and the server's validator."""
        return self.target.with_name(self.target.name + ".part.from")

    @property
    def seen(self) -> Path:
        return self.target.with_name(self.target.name + ".sha256")

    def run(self) -> None:
        """Try each address until one gives the right file, then rename that file."""
        problems: list[str] = []
        errors: list[Exception] = []
        for url in self.remote.urls:
            try:
                self._transfer_patiently(url)
                self.verify(self.part, "it was removed; fetch it again")
                break
            except (_TransferError, _RefusedError, DataError) as error:
                if isinstance(error, DataError):
                    self._discard()
                errors.append(error)
                problems.append(f"{url}: {error}")
        else:
            if len(errors) == 1 and isinstance(errors[0], DataError):
                raise errors[0]
            again = "run the same again to go on where it stopped, or " if self.part.exists() else ""
            raise DataError(f"{'; '.join(problems)}; {again}put the file at {self.target} by hand")
        checksum = None if self._has_checksum() else _sha256(self.part)
        os.replace(self.part, self.target)
        self.origin.unlink(missing_ok=True)
        if checksum:
            self.seen.write_text(f"{checksum}  {self.target.name}\n", encoding="ascii")
            self.tell(
                f"{self.target}: no checksum is published for it: this download was trusted, and {self.seen.name} "
                "holds from now on"
            )

    def _transfer_patiently(self, url: str) -> None:
        for attempt in range(self.attempts):
            try:
                self._transfer(url)
                break
            except _TransferError:
                if attempt == self.attempts - 1:
                    raise
                time.sleep(self.wait_s * 2**attempt)

    def _transfer(self, url: str) -> None:
        """Request and append the rest of the part; start over if the file changed."""
        if not url.startswith(("http://", "https://")):
            raise _RefusedError("expected an address that begins with http:// or https://")
        headers = {"User-Agent": "simfl", "Accept-Encoding": "identity"}
        offset = self._resumable(url, headers)
        try:
            with _OPENER.open(urllib.request.Request(url, headers=headers), timeout=self.timeout_s) as response:
                length = response.headers.get("Content-Length", "")
                total = int(length) if length.isdecimal() else None
                if response.status == 206:
                    start, total = _content_range(response.headers.get("Content-Range"))
                    if start != offset:
                        self._discard()
                        raise _TransferError(f"the server went on from byte {start} instead of {offset}")
                else:
                    offset = 0
                    self.part.write_bytes(b"")  # first: an older version must never stand under the new validator
                    validator = response.headers.get("ETag") or response.headers.get("Last-Modified") or ""
                    self.origin.write_text(f"{url}\n{'' if validator.startswith('W/') else validator}\n", "utf-8")
                if total is None and not response.chunked and not self._has_checksum():
                    raise _RefusedError("the server does not say how long the file is, and no checksum is known")
                self._receive(response, offset, total)
        except urllib.error.HTTPError as error:
            self._judge(error, offset)
        except (OSError, http.client.HTTPException) as error:
            if isinstance(error, OSError) and error.errno in _LOCAL_ERRORS:
                raise
            raise _TransferError(f"the connection failed ({getattr(error, 'reason', None) or error})") from None

    def _resumable(self, url: str, headers: dict[str, str]) -> int:
        address = validator = ""
        if self.part.exists() and self.origin.exists():
            address, validator = [*self.origin.read_text("utf-8").split("\n"), "", ""][:2]
        offset = self.part.stat().st_size if address == url else 0
        if not offset or not (validator or self._has_checksum()):
            self._discard()
            return 0
        headers["Range"] = f"bytes={offset}-"
        if validator:
            headers["If-Range"] = validator
        return offset

    def _receive(self, response: http.client.HTTPResponse, offset: int, total: int | None) -> None:
        done, most = offset, self.remote.most_bytes
        deadline = time.monotonic() + self.total_s
        with self.part.open("ab" if offset else "wb") as file:
            self.progress(self.target.name, done, total)
            while chunk := response.read1(_CHUNK_BYTES):
                done += len(chunk)
                if max(done, total or 0) > most:
                    file.close()
                    self._discard()
                    raise _RefusedError(f"expected at most {most:,} bytes, found {max(done, total or 0):,} or more")
                file.write(chunk)
                self.progress(self.target.name, done, total)
                if time.monotonic() > deadline:
                    raise _RefusedError(f"it takes longer than {self.total_s:g} s ({done:,} bytes so far)")
        if total is not None and done != total:
            raise _TransferError(f"the transfer broke off after {done} of {total} bytes")

    def _judge(self, error: urllib.error.HTTPError, offset: int) -> None:
        if error.code == 416:
            _, total = _content_range(error.headers.get("Content-Range"))
            if total == offset:
                return  # only the renaming was missing
            self._discard()
            raise _TransferError("the part did not fit the file")
        if error.code in (408, 429) or error.code >= 500:
            raise _TransferError(f"HTTP {error.code} {printable(str(error.reason))}")
        raise _RefusedError(f"HTTP {error.code} {printable(str(error.reason))}")

    def _discard(self) -> None:
        self.part.unlink(missing_ok=True)
        self.origin.unlink(missing_ok=True)

    def _has_checksum(self) -> bool:
        return bool(self.remote.sha256 or self.remote.content_sha256 or self.seen.exists())

    def verify(self, path: Path, advice: str) -> None:
        """Compare the file with every published or stored checksum."""
        checks = [("sha256", self.remote.sha256, False), ("sha256 of the content", self.remote.content_sha256, True)]
        if self.seen.exists():
            words = self.seen.read_text("ascii", errors="replace").split()
            checks.append(
                (f"sha256 in {self.seen} (delete that if it is out of date)", words[0] if words else "", False)
            )
        for label, expected, decompressed in checks:
            if expected is None:
                continue
            checksum = _sha256(path, self.target.suffix if decompressed else None)
            if checksum != expected:
                raise DataError(f"{path}: {label}: expected {expected}, found {checksum}; {advice}")


def _sha256(path: Path, packed_as: str | None = None) -> str:
    if packed_as is None:
        with path.open("rb") as file:
            return hashlib.file_digest(file, "sha256").hexdigest()
    digest = hashlib.sha256()
    try:
        with open_decompressed(path, packed_as) as content:
            while chunk := content.read(_CHUNK_BYTES):
                digest.update(chunk)
    except BROKEN_STREAM:
        return f"no readable {packed_as} file"
    return digest.hexdigest()


def _content_range(text: str | None) -> tuple[int, int | None]:
    """Return first byte and total of `bytes 5-9/10`; -1 and None if missing."""
    match = re.fullmatch(r"bytes (?:(\d+)-\d+|\*)/(?:(\d+)|\*)", text or "")
    if not match:
        return -1, None
    return int(match[1]) if match[1] else -1, int(match[2]) if match[2] else None
