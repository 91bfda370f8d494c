"""What pynvjitlink links: PTX, and inputs that fail."""

import gc

import pytest
from pynvjitlink.api import NvJitLinker, NvJitLinkError

PTX = b""".version 8.0
.target sm_80
.address_size 64
.visible .entry kernel() { ret; }
"""
CALLS = b""".version 8.0
.target sm_80
.address_size 64
.extern .func missing;
.visible .entry kernel() { call.uni missing; ret; }
"""


def test_link():
    linker = NvJitLinker("-arch=sm_90")
    linker.add_ptx(PTX, "kernel.ptx")
    assert bytes(linker.get_linked_cubin())[:4] == b"\x7fELF"
    assert not linker.error_log


def test_bad_option():
    with pytest.raises(NvJitLinkError):
        NvJitLinker("-arch=sm_90", "-nonsense")


def test_undefined():
    linker = NvJitLinker("-arch=sm_90")
    linker.add_ptx(CALLS, "calls.ptx")
    with pytest.raises(NvJitLinkError):
        linker.get_linked_cubin()
    assert "missing" in linker.error_log


def test_bad_input():
    linker = NvJitLinker("-arch=sm_90")
    with pytest.raises(NvJitLinkError):
        linker.add_ptx(b"nonsense", "bad.ptx")
    assert linker.error_log


def test_many():
    for number in range(10):
        linker = NvJitLinker("-arch=sm_90", "-lineinfo")
        linker.add_ptx(PTX, f"kernel{number}.ptx")
        linker.get_linked_cubin()
        linker.cycle = linker
        gc.collect()
