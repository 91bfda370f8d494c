"""Which linker is taken on a driver that is older than the toolkit, and why."""

from pytest_cudalink.linker import LinkerOptions, ObjectCode

PTX = b".version 8.0 .target sm_90 .address_size 64 .visible .func user_transform() { ret; }"


def test_which_linker(linker_factory):
    decision = linker_factory(ObjectCode.from_ptx(PTX), options=LinkerOptions(arch="sm_90")).decision
    print(decision)
    assert decision.backend == "driver"
