"""A library with a path for each backend."""

from pytest_cudalink.linker import LinkerOptions, ObjectCode

PTX = b".version 8.0 .target sm_90 .address_size 64 .visible .func user_transform() { ret; }"


def link(linker_factory):
    linker = linker_factory(ObjectCode.from_ptx(PTX), options=LinkerOptions(arch="sm_90"))
    if linker.backend == "driver":
        return "driver", linker.link("cubin")
    return "nvjitlink", linker.link("cubin")
