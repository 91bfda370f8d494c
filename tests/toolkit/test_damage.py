"""Damaged images reach no library: errors, not signals. Each runs in a process of its own."""

from __future__ import annotations

import json
import subprocess
import sys

import pytest

# Links one image per line of standard input and answers with the type of what happened.
CHILD = """
import base64, json, sys
from pytest_cudalink.linker import Linker, LinkerOptions, ObjectCode
backend = sys.argv[1]
for line in sys.stdin:
    kind, data = json.loads(line)
    image = base64.b64decode(data)
    try:
        code = getattr(ObjectCode, "from_" + kind)(image)
        with Linker(code, options=LinkerOptions(arch="sm_90", check_inputs=False), backend=backend) as linker:
            linker.link()
        answer = "linked"
    except (ValueError, RuntimeError) as error:
        answer = type(error).__name__
    print(answer, flush=True)
"""

CUTS = [64, 200, 1000, 0.5, 0.9, -1]


def feed(backend: str, images: list[tuple[str, bytes]]) -> list[str]:
    """What became of each image; fails if the process died."""
    import base64

    lines = "\n".join(json.dumps([kind, base64.b64encode(image).decode()]) for kind, image in images)
    done = subprocess.run(
        [sys.executable, "-c", CHILD, backend], input=lines, capture_output=True, text=True, check=False
    )
    answers = done.stdout.split()
    assert done.returncode == 0, f"died with {done.returncode} at image {len(answers)}: {done.stderr[-2000:]}"
    return answers


def cut(image: bytes, at: float) -> bytes:
    return image[: int(len(image) * at) if isinstance(at, float) else at]


@pytest.fixture(scope="session")
def truncated(samples) -> list[tuple[str, bytes]]:
    """Cubins of every toolkit, cut where the libraries are known to crash, and linked ones too."""
    return [
        ("cubin", cut(image, at)) for name, image in sorted(samples.items()) if name.endswith(".cubin") for at in CUTS
    ]


@pytest.mark.parametrize("backend", ["nvjitlink", "driver"])
def test_truncated_cubins(backend: str, truncated) -> None:
    """Each is a ValueError of ours; nvJitLink 13.2 and driver 580 would segfault on most."""
    assert set(feed(backend, truncated)) == {"ValueError"}


@pytest.mark.parametrize("backend", ["nvjitlink", "driver"])
def test_other_truncated_kinds(backend: str, samples) -> None:
    """Every other kind is refused by us or by the library; without a driver that is what its backend says."""
    kinds = {"ptx": "ptx", "ltoir": "ltoir", "fatbin": "fatbin", "o": "object", "a": "library"}
    images = [
        (kinds[name.rsplit(".", 1)[1]], cut(image, at))
        for name, image in sorted(samples.items())
        if not name.endswith(".cubin")
        for at in CUTS
    ]
    assert set(feed(backend, images)) <= {"ValueError", "LinkError", "linked", "DriverNotFoundError"}


@pytest.mark.parametrize("backend", ["nvjitlink", "driver"])
def test_one_changed_byte(backend: str, samples) -> None:
    """Every hundredth byte of a cubin changed: no signal; ``nox -s fuzz`` tries all of them."""
    image = samples["13.0/main.cubin"]
    found = []
    for at in range(0, len(image), 97):
        for value in (0, 0xFF):
            changed = bytearray(image)
            changed[at] = value
            found.append(("cubin", bytes(changed)))
    answers = feed(backend, found)
    assert len(answers) == len(found)
    assert answers.count("ValueError") > 10
