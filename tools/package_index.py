"""Files of a package index, read in parts: the JSON form of the simple API (PEP 691), and wheels by HTTP ranges.

`tools.make_exports` wants a few kilobytes of each wheel of half a gigabyte.
"""

from __future__ import annotations

import hashlib
import http.client
import io
import json
import os
import tempfile
import time
import urllib.error
import urllib.parse
import urllib.request
import zipfile
from dataclasses import dataclass
from typing import IO, Any, Final

from packaging.utils import InvalidWheelFilename, parse_wheel_filename
from packaging.version import InvalidVersion, Version

_ACCEPT: Final = "application/vnd.pypi.simple.v1+json"
_ATTEMPTS: Final = 4
_TIMEOUT: Final = 60.0
_FIRST_CHUNK: Final = 1 << 16
_LARGEST_CHUNK: Final = 1 << 24
#: Seconds before the second attempt; doubled each time.
BACKOFF = 1.0


class PackageIndexError(Exception):
    """The package index, or a file of it, cannot be read."""


@dataclass(frozen=True)
class IndexedFile:
    """One wheel of the index."""

    name: str  # file name
    url: str  # where it is
    version: Version  # version in the file name
    size: int | None  # bytes, if the index says so
    sha256: str | None  # hash, if the index says so
    yanked: bool  # whether its publisher withdrew it

    def fits(self, machine: str) -> bool:
        """Whether the wheel is for Linux on `machine`, such as ``x86_64``."""
        return "manylinux" in self.name and self.name.endswith(f"{machine}.whl")


def default_index() -> str:
    """Return the address of the index that uv or pip is configured for by environment, else PyPI's."""
    for variable in ("UV_DEFAULT_INDEX", "UV_INDEX_URL", "PIP_INDEX_URL"):
        if os.environ.get(variable):
            return os.environ[variable]
    return "https://pypi.org/simple"


def _read(url: str, headers: dict[str, str]) -> tuple[http.client.HTTPResponse, bytes]:
    """Read what a URL answers, several times if the server or the way there fails."""
    if urllib.parse.urlsplit(url).scheme not in {"http", "https"}:
        raise PackageIndexError(f"{url} is not an http or https address")
    fault = ""
    for attempt in range(_ATTEMPTS):
        if attempt:
            time.sleep(BACKOFF * 2 ** (attempt - 1))
        try:
            request = urllib.request.Request(url, headers=headers)  # noqa: S310 (the scheme is checked above)
            with urllib.request.urlopen(request, timeout=_TIMEOUT) as response:  # noqa: S310
                return response, response.read()
        except urllib.error.HTTPError as error:
            error.close()
            fault = f"answers {error.code} {error.reason}"
            if error.code < 500:
                break
        except (OSError, http.client.HTTPException) as error:
            fault = f"cannot be read: {error}"
    raise PackageIndexError(f"{url} {fault}")


def files_of(index: str, project: str) -> list[IndexedFile]:
    """Return the wheels of a project, oldest version first; a file whose name is not a wheel's is left out.

    Raises PackageIndexError if the index has no such project, or does not answer in JSON.
    """
    url = f"{index.rstrip('/')}/{project}/"
    response, data = _read(url, {"Accept": _ACCEPT})
    if "json" not in response.headers.get_content_type():
        msg = f"{url} answers {response.headers.get_content_type()}; expected {_ACCEPT}: use an index with PEP 691"
        raise PackageIndexError(msg)
    files = []
    for entry in json.loads(data)["files"]:
        try:
            version = parse_wheel_filename(entry["filename"])[1]
        except (InvalidWheelFilename, InvalidVersion):
            continue
        sha256 = entry.get("hashes", {}).get("sha256")
        address = urllib.parse.urljoin(url, entry["url"])
        files.append(
            IndexedFile(entry["filename"], address, version, entry.get("size"), sha256, bool(entry.get("yanked")))
        )
    return sorted(files, key=lambda file: (file.version, file.name))


def wheel_named(name: str) -> IndexedFile:
    """Return the wheel of the default index that has a file name.

    Raises PackageIndexError if the index has no such wheel.
    """
    project = parse_wheel_filename(name)[0]
    for file in files_of(default_index(), project):
        if file.name == name:
            return file
    raise PackageIndexError(f"{default_index()} has no {name}")


def metadata_of(file: IndexedFile) -> bytes:
    """Return the METADATA of a wheel on the index; a few kilobytes of it are transferred."""
    with RangeFile(file) as raw, zipfile.ZipFile(io.BufferedReader(raw)) as archive:
        (name,) = (member for member in archive.namelist() if member.endswith(".dist-info/METADATA"))
        return archive.read(name)


class RangeFile(io.RawIOBase):
    """A file of the index that is read in parts, as needed; whole, and its hash checked, if the server has no ranges.

    `file`: what to read.
    `fetched`: bytes that were transferred.
    """

    def __init__(self, file: IndexedFile) -> None:
        self.file = file
        self.fetched = 0
        self._position = 0
        self._start: int
        self._data: bytes
        self._chunk: int
        self._whole: IO[bytes] | None = None
        # the directory of a zip is at its end
        self._size = self._fetch(-_FIRST_CHUNK)

    def readable(self) -> bool:
        return True

    def seekable(self) -> bool:
        return True

    def tell(self) -> int:
        return self._position

    def seek(self, offset: int, whence: int = io.SEEK_SET, /) -> int:
        self._position = offset + {io.SEEK_SET: 0, io.SEEK_CUR: self._position, io.SEEK_END: self._size}[whence]
        return self._position

    def readinto(self, buffer: Any, /) -> int:
        count = min(len(buffer), self._size - self._position)
        if count <= 0:
            return 0
        if self._whole is not None:
            self._whole.seek(self._position)
            data = self._whole.read(count)
        else:
            if not self._start <= self._position < self._start + len(self._data):
                # what is read in sequence is fetched in growing parts
                sequel = self._position == self._start + len(self._data)
                self._chunk = min(self._chunk * 2, _LARGEST_CHUNK) if sequel else _FIRST_CHUNK
                self._fetch(self._position)
            offset = self._position - self._start
            data = self._data[offset : offset + count]
        buffer[: len(data)] = data
        self._position += len(data)
        return len(data)

    def close(self) -> None:
        if self._whole is not None:
            self._whole.close()
        super().close()

    def _fetch(self, start: int) -> int:
        """Fetch one part, from `start` on or, if it is negative, the last one; returns the size of the file."""
        asked = f"bytes={start}" if start < 0 else f"bytes={start}-{start + self._chunk - 1}"
        response, data = _read(self.file.url, {"Range": asked, "Accept-Encoding": "identity"})
        self.fetched += len(data)
        if response.status == http.client.OK:
            return self._keep(data)
        place, _, total = response.headers.get("Content-Range", "").removeprefix("bytes ").partition("/")
        if not total.isdigit() or not place.partition("-")[0].isdigit():
            msg = f"{self.file.url} answers {response.status} without the place of the part; asked for {asked}"
            raise PackageIndexError(msg)
        self._start, self._data = int(place.partition("-")[0]), data
        if self.file.size not in {None, int(total)}:
            raise PackageIndexError(f"{self.file.name} has {total} bytes; the index says {self.file.size}")
        if start >= 0 and self._start != start:
            raise PackageIndexError(f"{self.file.url} answers from byte {self._start} on; asked for {asked}")
        return int(total)

    def _keep(self, data: bytes) -> int:
        """Keep the whole file, which a server without ranges has sent."""
        if self.file.sha256 not in {None, hashlib.sha256(data).hexdigest()}:
            msg = f"{self.file.name} does not have the sha256 that the index says, {self.file.sha256}"
            raise PackageIndexError(msg)
        self._whole = tempfile.TemporaryFile()  # noqa: SIM115 (closed with the file itself)
        self._whole.write(data)
        return len(data)
