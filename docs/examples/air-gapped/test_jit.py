"""A link, and a question that needs no linker."""

from pytest_cudalink.linker import LinkerOptions, ObjectCode

PTX = b".version 8.0 .target sm_90 .address_size 64 .visible .func user_transform() { ret; }"


def test_driver(cudalink):
    assert str(cudalink.driver) == "12.4"


def test_link(linker_factory, force_backend):
    force_backend("driver")
    assert linker_factory(ObjectCode.from_ptx(PTX), options=LinkerOptions(arch="sm_90")).link("cubin")
