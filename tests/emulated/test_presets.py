"""Presets: faults that real machines have, by name."""

from __future__ import annotations

import pytest

from pytest_cudalink.emulator import faults, supported_versions


@pytest.mark.parametrize(
    "name", ["forward-compat", "Forward-Compatibility-Mismatch", "forward-compatibility-mismatch=1"]
)
def test_a_preset_that_is_not_known(name: str) -> None:
    """The error lists the presets."""
    with pytest.raises(ValueError, match="cannot be read.*Presets: forward-compatibility-on-geforce, "):
        faults.parse(name, supported_versions()[-1])


def test_a_missing_compiler(check) -> None:
    """Links and PTX are refused, cubins load; the fault is written as it was read."""
    (fault,) = faults.parse("missing-jit-compiler", supported_versions()[-1])
    assert faults.text_of((fault,)) == "jit=221"
    program = """
start()
print(load(artifact("13.0/linked.cubin"))[0], load(artifact("13.0/main.ptx") + b"\\0")[0])
state = c_void_p()
print(cuda.cuLinkCreate_v2(0, None, None, byref(state)))
"""
    assert check(program, faults="missing-jit-compiler").split() == ["0", "221", "221"]


def test_a_preset_beside_faults() -> None:
    """A preset is one of several faults."""
    found = faults.parse("cuMemAlloc:2=2;forward-compatibility-mismatch", supported_versions()[-1])
    assert [(one.function, one.nth, one.code) for one in found] == [("cuMemAlloc_v2", 2, 2), ("cuInit", 0, 803)]
