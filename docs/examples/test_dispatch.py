"""Compare a project's choice of the linker with every case of the table."""

import pytest


def choose_backend(driver_major, nvjitlink_version, inputs_have_ltoir, lto_requested):
    """Replace this with the function of your project."""
    needs_nvjitlink = inputs_have_ltoir or lto_requested
    if nvjitlink_version is None:
        if needs_nvjitlink:
            raise RuntimeError("nvJitLink is not available")
        return "driver"
    if driver_major is None or driver_major == nvjitlink_version[0]:
        return "nvjitlink"
    if needs_nvjitlink:
        raise RuntimeError("LTO needs matching major versions of driver and nvJitLink")
    return "driver"


def test_my_choice(dispatch_case):
    dispatch_case.check(choose_backend)


@pytest.mark.cudalink(policy="released")
def test_the_cases_of_another_table(dispatch_case):
    assert dispatch_case.policy == "released"
