"""The generated constants, against the data files that they are made from; names of GPUs and ranges of drivers.

`tests/audit/test_device_code.py` has the common names.
"""

import re
import subprocess
import sys

import pytest

from pytest_cudalink.compat import names
from pytest_cudalink.compat.architectures import ARCHITECTURES, architecture_of, dropped_by
from pytest_cudalink.compat.releases import DRIVER_RELEASES, NVVM_IR, PTX_ISA, STAND_INS, driver_named, drivers_in
from pytest_cudalink.versions import CudaVersion
from tools import make_names


def test_names_are_up_to_date() -> None:
    """The checked-in file is what ``nox -s generate`` writes."""
    assert make_names.NAMES.read_text(encoding="utf-8") == make_names.source(), "run: nox -s generate"


def test_names_import_nothing_of_the_project() -> None:
    """Reading the constants imports nothing else."""
    program = (
        "import sys, pytest_cudalink.compat.names\n"
        "print(sorted(n for n, m in sys.modules.items() if 'cudalink' in n and m.__spec__))"  # not an old path
    )
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    assert done.stdout == "['pytest_cudalink', 'pytest_cudalink.compat', 'pytest_cudalink.compat.names']\n"


def test_devices_are_known_architectures() -> None:
    """Each emulated device has an architecture of the table, and the default is one of them."""
    assert set(names.EMULATED_ARCHITECTURES) <= {f"sm_{architecture.number}" for architecture in ARCHITECTURES}
    assert names.DEFAULT_ARCHITECTURE in names.EMULATED_ARCHITECTURES


def test_a_stand_in_is_the_next_release_with_wheels() -> None:
    """A release without wheels is known by its documents only, and a newer one with wheels links in its place."""
    assert list(DRIVER_RELEASES) == list(PTX_ISA)
    assert set(STAND_INS) == set(PTX_ISA) - set(NVVM_IR)
    for release, other in STAND_INS.items():
        assert other == min(version for version in NVVM_IR if version > release)


@pytest.mark.parametrize(("release", "dropped"), [("12.9", False), ("13.0", True), ("13.5", True)])
def test_dropped_architectures(release: str, dropped: bool) -> None:
    """CUDA 13 no longer links for what is older than sm_75; an unknown name was never dropped."""
    version = CudaVersion.parse(release)
    assert dropped_by(version, "sm_70") is dropped
    assert not dropped_by(version, "sm_75")
    assert not dropped_by(version, "sm_1")


@pytest.mark.parametrize("name", ["  L4\n", "nvidia l4", "L4-24GB", " 8.9 ", "RTX 4090 24GB"])
def test_ways_to_write_a_gpu(name: str) -> None:
    """Blanks, the maker, and what stands behind the name distinguish nothing."""
    assert architecture_of(name) == "sm_89"


@pytest.mark.parametrize(
    ("name", "hint"),
    [
        ("RTX 409", "did you mean RTX 4090 or RTX 5090 or RTX 4080?"),
        ("NVIDIA GeForce RTX 409", "did you mean RTX 4090 or RTX 5090 or RTX 4080?"),
        ("banana", "give a name such as L4 or RTX 4090"),
    ],
)
def test_unknown_gpus(name: str, hint: str) -> None:
    """The nearest names, three at most, or an example; an architecture will do, too."""
    newest = f"sm_{ARCHITECTURES[-1].number}"
    message = f"GPU {name!r} is unknown; {hint}; an architecture such as {newest} does, too"
    with pytest.raises(ValueError, match=f"^{re.escape(message)}$"):
        architecture_of(name)


def test_ways_to_write_a_driver() -> None:
    """Blanks count for nothing; what is between a CUDA version and a branch is neither."""
    assert driver_named(" 535 ") == (12, 2)
    assert driver_named("610.43.02") == driver_named("R610") == (13, 3)  # 600 and 605 were never released
    words = rf"or a CUDA version from 12\.0 to 12\.9, 13\.0 to {max(DRIVER_RELEASES)}$"
    for text in ("100", "13.99"):
        with pytest.raises(ValueError, match=words):
            driver_named(text)


def test_parts_that_are_no_bound() -> None:
    """The part is named, with the way to write a range."""
    message = "drivers '>=535,~580 x': '~580 x' is not a bound; write a range such as '>=525' or '>=535,<580'"
    with pytest.raises(ValueError, match=f"^{re.escape(message)}$"):
        drivers_in(">=535,~580 x")
