"""The stubs that this project ships must load on every machine."""

from pytest_cudalink.stubs import library_path


def test_loads_anywhere(audit_wheel):
    audit_wheel(library_path("cudart").parent).check("11", "12", "13", "none")


def test_contains_no_cuda_library(audit_wheel):
    audit_wheel(library_path("cudart").parent).check(bundles=False)
