"""Unpack one file of a wheel on the package index, without downloading the rest: unpack.py REQUIREMENT MEMBER."""

import sys
import zipfile
from pathlib import Path

from pytest_cudalink.audit.index import open_on_index

requirement, member = sys.argv[1:]
_, file = open_on_index(requirement)
with file, zipfile.ZipFile(file) as wheel:
    Path(Path(member).name).write_bytes(wheel.read(member))
