"""Names of GPUs and ranges of drivers, at their edges; `tests/audit/test_device_code.py` has the common ones."""

import re

import pytest

from pytest_cudalink.compat.architectures import ARCHITECTURES, architecture_of
from pytest_cudalink.compat.releases import DRIVER_RELEASES, driver_named, drivers_in


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
    for text in ("100", "13.99"):
        with pytest.raises(
            ValueError, match=rf"or a CUDA version from 12\.0 to 12\.9, 13\.0 to {max(DRIVER_RELEASES)}$"
        ):
            driver_named(text)


def test_parts_that_are_no_bound() -> None:
    """The part is named, with the way to write a range."""
    message = "drivers '>=535,~580 x': '~580 x' is not a bound; write a range such as '>=525' or '>=535,<580'"
    with pytest.raises(ValueError, match=f"^{re.escape(message)}$"):
        drivers_in(">=535,~580 x")
