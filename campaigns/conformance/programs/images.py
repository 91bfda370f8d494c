"""What recorded programs load: the images of the package, and files of tests/data."""

from functools import cache
from pathlib import Path

from pytest_cudalink.emulator.recorder import execute

ARTIFACTS = Path(__file__).parents[3] / "tests" / "data" / "artifacts"

_FILES = {
    "linked": "13.0/linked.cubin",
    "part": "13.0/user.cubin",
    "foreign": "13.0/user-sm_100.cubin",
    "older": "12.9/linked.cubin",
    "fatbin": "nvcc/user.fatbin",
    "ltoir": "13.0/user.ltoir",
}

#: In the order by which generated programs choose.
IMAGES = ("program", "other", "broken", "newer", "undefined", "text", *_FILES)


@cache
def image(name: str) -> bytes:
    """The bytes of an image, a NUL at the end."""
    if name in execute.texts():
        return execute.image(name)
    return (ARTIFACTS / _FILES[name]).read_bytes() + b"\0" * 8
