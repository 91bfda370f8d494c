"""The scenarios of a campaign: what is done with a damaged image, and what became of it."""

import ctypes
import enum
import io
import tempfile
import warnings
import zipfile
from collections.abc import Callable
from contextlib import redirect_stderr, redirect_stdout
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any, Final

from campaigns.driver import Driver

from .mutations import Subject


class Outcome(enum.IntEnum):
    """What became of one damaged image, or of one round; the last three are failures of a campaign."""

    NOT_TRIED = 0
    AT_WORK = enum.auto()
    ACCEPTED = enum.auto()
    REFUSED_BY_US = enum.auto()
    REFUSED_BY_LIBRARY = enum.auto()
    WORKER_DIED = enum.auto()
    WORKER_HUNG = enum.auto()
    FATAL = enum.auto()
    UNEXPECTED = enum.auto()
    SIGNAL = enum.auto()
    HANG = enum.auto()


FAILURES: Final = (Outcome.UNEXPECTED, Outcome.SIGNAL, Outcome.HANG)


Use = Callable[[Subject, bytes], Outcome]


@dataclass(frozen=True)
class Scenario:
    """What is done with damaged images."""

    title: str
    kinds: frozenset[str]  # the kinds of image that it takes
    # called once in a child process; returns the function that uses one image
    prepare: Callable[[], Use]
    emulated: bool  # whether the child process has an emulated driver


def _of_text(text: str) -> Outcome:
    """Return what a log says about the link worker; a refusal by the library if it says nothing."""
    if "and reported success" in text or "reported success, but it printed" in text:
        return Outcome.FATAL
    if "link worker" not in text:
        return Outcome.REFUSED_BY_LIBRARY
    return Outcome.WORKER_HUNG if "did not finish within" in text else Outcome.WORKER_DIED


def _linker(backend: Any) -> Use:
    from pytest_cudalink.linker import Linker, LinkerOptions, LinkError, ObjectCode

    warnings.simplefilter("ignore")

    def use(subject: Subject, data: bytes) -> Outcome:
        make = getattr(ObjectCode, f"from_{subject.kind}")
        inputs = [make(data, name="damaged")]
        if subject.sibling:
            inputs.append(getattr(ObjectCode, f"from_{subject.sibling_kind}")(subject.sibling, name="sound"))
        lto = subject.lto and backend == "nvjitlink"
        options = LinkerOptions(arch=subject.arch, link_time_optimization=lto, contain=True)
        try:
            with Linker(*inputs, options=options, backend=backend) as linker:
                linker.link("cubin")
        except ValueError:
            return Outcome.REFUSED_BY_US
        except LinkError as error:
            return _of_text(str(error)) if error.call else Outcome.REFUSED_BY_US
        return Outcome.ACCEPTED

    return use


#: CUjitInputType of cuda.h.
_TYPES: Final = {"cubin": 0, "ptx": 1, "fatbin": 2, "object": 3, "library": 4, "ltoir": 5}
_ERROR_LOG, _ERROR_LOG_SIZE, _TARGET = 5, 6, 9
_LOG_SIZE: Final = 16 * 1024


def _started() -> Driver:
    driver = Driver()
    driver.start()
    return driver


def _raw_link() -> Use:
    driver = _started()
    log = ctypes.create_string_buffer(_LOG_SIZE)
    keys = (ctypes.c_int * 3)(_ERROR_LOG, _ERROR_LOG_SIZE, _TARGET)

    def use(subject: Subject, data: bytes) -> Outcome:
        log.value = b""
        values = (ctypes.c_void_p * 3)(ctypes.addressof(log), _LOG_SIZE, int(subject.arch.removeprefix("sm_")))
        state, out, code = ctypes.c_uint64(), ctypes.create_string_buffer(8), 0
        driver.must("cuLinkCreate_v2", 3, keys, values, ctypes.byref(state))
        for kind, part in ((subject.kind, data), (subject.sibling_kind, subject.sibling)):
            if part and not code:
                code = driver.do("cuLinkAddData_v2", state, _TYPES[kind], part, len(part), b"damaged", 0, None, None)
        code = code or driver.do("cuLinkComplete", state, out, ctypes.create_string_buffer(8))
        text = log.value.decode("utf-8", "replace")
        driver.must("cuLinkDestroy", state)
        if code == 0:
            return Outcome.ACCEPTED
        return Outcome.REFUSED_BY_US if "on which a real driver may crash" in text else _of_text(text)

    return use


# a load takes no size: what a damaged header claims may lie behind the buffer, where memory ends


def _load(kind: str) -> Use:
    """Load the image as a "Module" or a "Library"."""
    driver, given = _started(), () if kind == "Module" else (None, None, 0, None, None, 0)

    def use(_: Subject, data: bytes) -> Outcome:
        loaded = ctypes.c_uint64()
        if driver.do(f"cu{kind}LoadData", ctypes.byref(loaded), data, *given):
            return Outcome.REFUSED_BY_LIBRARY
        # the load of a library is lazy
        refused = given and driver.do("cuLibraryGetModule", ctypes.create_string_buffer(8), loaded)
        driver.must(f"cu{kind}Unload", loaded)
        return Outcome.REFUSED_BY_LIBRARY if refused else Outcome.ACCEPTED

    return use


def _audit() -> Use:
    """Audit a wheel that has the image as a file and, behind other bytes, in one: its libraries and its device code."""
    from pytest_cudalink.cli import make_parser

    folder = tempfile.TemporaryDirectory()
    wheel = Path(folder.name, "x-1-py3-none-any.whl")
    parser = make_parser(["audit"])  # once: it takes longer than an audit of such a wheel
    modes: tuple[list[str], ...] = ([], ["--gpu=sm_90"], ["--device-code", "--format=json"])
    wanted = [parser.parse_args(["audit", str(wheel), *mode]) for mode in modes]

    def use(_: Subject, data: bytes) -> Outcome:
        with zipfile.ZipFile(Path(folder.name, wheel.name), "w") as archive:
            archive.writestr("x/image.cubin", data)
            archive.writestr("x/data.bin", b"data" + data)
            archive.writestr("x-1.dist-info/METADATA", b"Metadata-Version: 2.1\nName: x\nVersion: 1\n\n")
        with redirect_stdout(io.StringIO()), redirect_stderr(io.StringIO()):
            codes = [options.run(options) for options in wanted]
        return Outcome.REFUSED_BY_US if codes[-1] else Outcome.ACCEPTED

    return use


_DRIVER_KINDS: Final = frozenset({"cubin", "ptx", "fatbin", "object", "library"})
_ALL_KINDS: Final = _DRIVER_KINDS | {"ltoir"}
_LOADED: Final = frozenset({"cubin", "ptx", "fatbin"})

IMAGES: Final = {
    "nvjitlink": Scenario("Linker, nvjitlink, contained", _ALL_KINDS, partial(_linker, "nvjitlink"), emulated=False),
    "driver": Scenario("Linker, emulated driver", _DRIVER_KINDS, partial(_linker, "driver"), emulated=True),
    "raw": Scenario("cuLinkAddData, emulated driver", _ALL_KINDS, _raw_link, emulated=True),
    "load": Scenario("cuModuleLoadData, emulated driver", _LOADED, partial(_load, "Module"), emulated=True),
    "library": Scenario("cuLibraryLoadData, emulated driver", _LOADED, partial(_load, "Library"), emulated=True),
    "audit": Scenario("cudalink audit of a wheel", _ALL_KINDS, _audit, emulated=False),
}
