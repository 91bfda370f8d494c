"""Contained links: what nvJitLink does to its process is a LinkError that names the input."""

import os
import signal
from types import SimpleNamespace

import pytest

from pytest_cudalink import probes
from pytest_cudalink.linker import Linker, LinkerOptions, LinkError, ObjectCode
from pytest_cudalink.linker.backends import contained, opener
from pytest_cudalink.linker.backends.contained import ContainedState
from pytest_cudalink.linker.backends.driver import DriverLinkState
from pytest_cudalink.linker.backends.nvjitlink import NvJitLinkState
from tests.emulator.worker import fakes

CALL = "nvJitLink: nvJitLink"
END = "libnvJitLink 13.0 ended with signal 11 (SIGSEGV), in its link worker"


@pytest.fixture(scope="module")
def fake(tmp_path_factory) -> str:
    """The path of the fake library."""
    return str(fakes.build(tmp_path_factory.mktemp("fake")))


@pytest.fixture
def state(monkeypatch, fake) -> ContainedState:
    """A contained link through the fake library."""
    nvjitlink = probes.NvJitLink(probes.CudaVersion(13, 0), fake)
    monkeypatch.setattr(contained.probes, "nvjitlink", lambda: nvjitlink)
    return ContainedState(["-arch=sm_90"])


def test_an_input_that_ends_it(state) -> None:
    """The error names the call and the signal; the linker can go on."""
    state.add("ptx", b"one", "a")
    with pytest.raises(LinkError) as caught:
        state.add("ptx", b"!segv", "b")
    assert caught.value.summary == f"{CALL}AddData: {END}"
    assert (caught.value.backend, caught.value.code) == ("nvjitlink", None)
    assert state.complete("cubin") == b"aone"
    assert state.info_log == "a was added\n"
    state.close()


@pytest.mark.parametrize(
    ("inputs", "named", "hint"),
    [
        ([b"?segv"], "in0", ""),
        ([b"x", b"?segv", b"y"], "in1", ""),
        ([b"?segv", b"x", b"?segv"], None, "inputs that end it alone: 'in0', 'in2'"),
        ([b"?segv", b"!print"], "in0", ""),
        ([b"x", b"?segv"], None, "inputs: 'in0', 'in1'"),
    ],
)
def test_inputs_that_end_it_when_linked(state, inputs, named, hint, monkeypatch) -> None:
    """Each input is linked alone, and those that are deadly are named; all are, when none is deadly alone."""
    if hint.startswith("inputs: "):
        monkeypatch.setattr(state, "_deadly", lambda _target: iter(()))
    for number, data in enumerate(inputs):
        state.add("ptx", data, f"in{number}")
    with pytest.raises(LinkError) as caught:
        state.complete("cubin")
    assert caught.value.summary == f"{CALL}Complete: {END}"
    assert (caught.value.input_name, caught.value.hint) == (named, hint)
    state.close()


def test_a_hang(state, monkeypatch, fake) -> None:
    """After the limit the inputs are not tried again; the error says how to set another."""
    monkeypatch.setenv("CUDALINK_LINK_TIMEOUT", "1")
    slow = ContainedState(["-arch=sm_90"])
    slow.add("ptx", b"x", "a")
    slow.add("ptx", b"?hang", "b")
    with pytest.raises(LinkError, match="did not finish within 1 s") as caught:
        slow.complete("cubin")
    assert caught.value.hint == "CUDALINK_LINK_TIMEOUT sets another limit, in seconds; inputs: 'a', 'b'"
    slow.close()
    state.close()


def test_refused(state) -> None:
    """Codes of the library are those of the uncontained backend."""
    with pytest.raises(LinkError) as caught:
        state.add("ptx", b"!refuse", "a")
    assert (caught.value.code, caught.value.code_name) == (4, "NVJITLINK_ERROR_PTX_COMPILE")
    assert caught.value.error_log == "error   : no\n"
    assert str(caught.value.with_context(error_log="one\n\ntwo\n")).endswith("\n  log: one\n  log: two")
    with pytest.raises(LinkError, match="nvJitLinkGetLinkedPtx failed"):
        state.complete("ptx")
    state.close()
    logged = ContainedState([])
    with pytest.raises(LinkError):
        logged.add("ptx", b"!refuse", "a")
    with pytest.raises(LinkError, match="nvJitLinkComplete reported success, but its log has errors"):
        logged.complete("cubin")
    logged.close()
    with pytest.raises(LinkError, match=r"(?s)nvJitLinkCreate failed: .*options: -wrong -more$"):
        ContainedState(["-wrong", "-more"])
    with pytest.raises(LinkError, match=r"nvJitLinkCreate: libnvJitLink 13.0 ended with signal 11"):
        ContainedState(["-crash"])


def test_who_asks_for_it(monkeypatch) -> None:
    """The option contains one link, the variable every link; a wrong value of it is not passed over in silence."""
    monkeypatch.delenv("CUDALINK_CONTAIN", raising=False)
    assert [opener("nvjitlink", contain=contain) for contain in (False, True)] == [NvJitLinkState, ContainedState]
    for value, expected in (("yes", ContainedState), ("no", NvJitLinkState)):
        monkeypatch.setenv("CUDALINK_CONTAIN", value)
        assert opener("nvjitlink", contain=False) is expected
        assert opener("driver", contain=False) is DriverLinkState
    for value in ("1", "true", "YES"):
        monkeypatch.setenv("CUDALINK_CONTAIN", value)
        with pytest.raises(ValueError, match=f"CUDALINK_CONTAIN is '{value}'; expected yes or no"):
            opener("nvjitlink", contain=False)
        monkeypatch.setenv("CUDALINK_LINK_TIMEOUT", value + "s")
        with pytest.raises(ValueError, match="CUDALINK_LINK_TIMEOUT"):
            ContainedState([])


def test_the_driver(monkeypatch) -> None:
    """An emulated driver's links are contained anyway; a real driver's cannot be."""
    library = SimpleNamespace(cudalinkEmulatorVersion=0)
    monkeypatch.setattr("pytest_cudalink.linker.backends.libcuda.library", lambda: library)
    assert opener("driver", contain=True) is DriverLinkState
    del library.cudalinkEmulatorVersion
    with pytest.raises(ValueError, match="contain = True, but the real driver links in this process"):
        opener("driver", contain=True)


@pytest.mark.parametrize(
    ("kind", "target"), [("cubin", "cubin"), ("ptx", "cubin"), ("ltoir", "cubin"), ("ltoir", "ptx")]
)
def test_real_links(toolkit, sample_code, kind: str, target: str) -> None:
    """The real library makes the same image in a worker, and the same logs."""
    codes = [sample_code(f"{toolkit}/{name}.{kind}") for name in ("main", "user")]
    # CUDA's cache, which a GPU's driver brings, would spare the second link what it reports
    options = {"arch": "sm_90", "verbose": True, "no_cache": True, "ptx": target == "ptx" or None}
    results = []
    for contain in (False, True):
        with Linker(*codes, options=LinkerOptions(contain=contain, **options), backend="nvjitlink") as linker:
            image = linker.link(target).code
            results.append((image, linker.get_error_log(), "Function properties" in linker.get_info_log()))
    assert results[0] == results[1]


@pytest.mark.filterwarnings("ignore:This process .* is multi-threaded:DeprecationWarning")
def test_a_fork(toolkit, samples) -> None:
    """A forked child closes what it inherited, and links in its own worker."""
    code = ObjectCode.from_cubin(samples[f"{toolkit}/user.cubin"])
    options = LinkerOptions(arch="sm_90", contain=True)
    with Linker(code, options=options, backend="nvjitlink") as linker:
        pid = os.fork()
        if not pid:
            signal.alarm(60)
            linker.close()
            with Linker(code, options=options, backend="nvjitlink") as other:
                os._exit(0 if other.link("cubin").code else 1)
        assert os.waitpid(pid, 0)[1] == 0
        assert linker.link("cubin").code
