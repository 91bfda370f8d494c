"""The device code of published wheels, as cuobjdump lists it. ``nox -s device-code`` downloads them."""

import os
import subprocess
import zipfile
from collections import Counter
from pathlib import Path

import pytest

from pytest_cudalink.audit.device_code import images
from tests.audit.test_device_code import cuobjdump

FOLDER = os.environ.get("CUDALINK_AUDITED_WHEELS")
pytestmark = [
    pytest.mark.apart,
    pytest.mark.skipif(FOLDER is None, reason="needs published wheels: 'nox -s device-code' downloads them"),
]

#: A file of which cuobjdump 13.5 says that its ELF is invalid, in the middle of the list.
UNLISTED = "libbitsandbytes_cuda121.so"


def path_of(name: str) -> Path:
    (path,) = Path(FOLDER).glob(f"{name}-*.whl")
    return path


@pytest.mark.skipif(cuobjdump() is None, reason="needs cuobjdump: the wheel nvidia-cuda-cuobjdump, or a toolkit")
@pytest.mark.parametrize("name", ["cupy_cuda12x", "bitsandbytes", "xformers"])
def test_agrees_with_cuobjdump(name, tmp_path) -> None:
    """The same cubins and PTX in each library of a wheel."""
    ours: dict[str, Counter] = {}
    for image in images(path_of(name)):
        ours.setdefault(image.path, Counter())[image.kind, image.arch.rstrip("f")] += 1
    assert ours
    archive = zipfile.ZipFile(path_of(name))
    for path, counted in ours.items():
        if UNLISTED in path:
            continue
        extracted = archive.extract(path, tmp_path)
        done = subprocess.run(
            [cuobjdump(), "-all", "-lelf", "-lptx", extracted], capture_output=True, text=True, check=True
        )
        names = [word for word in done.stdout.split() if word.endswith((".cubin", ".ptx"))]
        assert counted == Counter((Path(word).suffix[1:], word.split(".")[-2]) for word in names), path
