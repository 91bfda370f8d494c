"""The cases: what a caller can do to cuLink*, right and wrong.

Recorded from a real driver, replayed on the emulated one.
"""

from __future__ import annotations

import ctypes
import tempfile
from collections.abc import Callable, Iterable
from pathlib import Path

from .recorder import (
    CACHE_MODE,
    CUBIN,
    DEBUG,
    ERROR,
    ERROR_SIZE,
    FALLBACK,
    FATBIN,
    FROM_CONTEXT,
    INFO,
    INFO_SIZE,
    LIBRARY,
    LINE_INFO,
    MAX_REGISTERS,
    NVVM,
    OBJECT,
    OPTIMIZATION_LEVEL,
    PTX,
    TARGET,
    THREADS_PER_BLOCK,
    VERBOSE,
    WALL_TIME,
    Recorder,
    sample,
)

Case = Callable[[Recorder], None]
CASES: dict[str, Case] = {}

MAIN, USER = sample("13.0/main.ptx"), sample("13.0/user.ptx")
MAIN_CUBIN, USER_CUBIN = sample("13.0/main.cubin"), sample("13.0/user.cubin")
KINDS = {"cubin": CUBIN, "ptx": PTX, "fatbin": FATBIN, "object": OBJECT, "library": LIBRARY, "nvvm": NVVM}
SM_90 = (TARGET, 90)


def case(name: str) -> Callable[[Case], Case]:
    """Register a case under a name."""

    def register(function: Case) -> Case:
        assert name not in CASES, name
        CASES[name] = function
        return function

    return register


def linked(name: str, *inputs: tuple[int, bytes], **keywords: object) -> None:
    """A case that creates, adds, completes and destroys."""

    @case(name)
    def run(d: Recorder) -> None:
        d.start()
        d.link(*inputs, **keywords)


def added(
    name: str, *inputs: tuple[object, ...], options: Iterable[tuple[int, object]] = (), **keywords: object
) -> None:
    """A case like those of `linked`, whose inputs have other names: each is what `Recorder.add` takes."""

    @case(name)
    def run(d: Recorder) -> None:
        d.start()
        state = d.create(*options, **keywords)
        for one in inputs:
            d.add(state, *one)
        d.complete(state)
        d.destroy(state)


def ptx(text: str, version: str = "9.0", target: str = "sm_90") -> bytes:
    """A PTX module around some directives."""
    return f".version {version}\n.target {target}\n.address_size 64\n{text}\n".encode()


KERNEL = ptx(".visible .entry kernel() { ret; }")


# -- create


@case("create/before-init")
def _(d: Recorder) -> None:
    d.create()


@case("create/no-context")
def _(d: Recorder) -> None:
    d.library.cuInit(0)
    d.create()


linked("create/no-options", (PTX, MAIN), (PTX, USER), info=None, error=None)


@case("create/null-state")
def _(d: Recorder) -> None:
    d.start()
    d.call("cuLinkCreate_v2", 0, None, None, None)


@case("create/null-keys")
def _(d: Recorder) -> None:
    d.start()
    d.call("cuLinkCreate_v2", 1, None, (ctypes.c_uint64 * 1)(1), ctypes.byref(ctypes.c_void_p()))


@case("create/null-values")
def _(d: Recorder) -> None:
    d.start()
    d.call("cuLinkCreate_v2", 1, (ctypes.c_int * 1)(VERBOSE), None, ctypes.byref(ctypes.c_void_p()))


@case("create/v1")
def _(d: Recorder) -> None:
    d.start()
    state = d.create(function="cuLinkCreate")
    d.add(state, PTX, KERNEL, function="cuLinkAddData")
    d.complete(state)
    d.destroy(state)


for _key in (15, 16, 17, 18, 19, 35, 36, 99, 999, -1):

    @case(f"create/option-{_key}")
    def _(d: Recorder, key: int = _key) -> None:
        d.start()
        d.link((PTX, KERNEL), options=[(key, 0 if key in (17, 18, 19) else 1)])


linked("create/same-option-twice", (PTX, KERNEL), options=[(MAX_REGISTERS, 32), (MAX_REGISTERS, 64)])


for _target in (
    0,
    30,
    35,
    50,
    70,
    75,
    80,
    86,
    87,
    88,
    89,
    90,
    0x1005A,
    0x2005A,
    91,
    100,
    101,
    103,
    110,
    120,
    121,
    0x10064,
    0x20064,
    12345,
):

    @case(f"create/target-{_target:#x}")
    def _(d: Recorder, target: int = _target) -> None:
        d.start()
        d.link((PTX, ptx(".visible .entry kernel() { ret; }", "8.0", "sm_50")), options=[(TARGET, target)])


linked("create/target-and-context", (PTX, KERNEL), options=[SM_90, (FROM_CONTEXT, 0)])


linked("create/from-context", (PTX, KERNEL), options=[(FROM_CONTEXT, 0)])


linked("create/threads-and-target", (PTX, KERNEL), options=[SM_90, (THREADS_PER_BLOCK, 128)])


linked("create/size-without-buffer", (PTX, MAIN + b"garbage"), options=[(ERROR_SIZE, 100)], info=None, error=None)


@case("create/buffer-without-size")
def _(d: Recorder) -> None:
    d.start()
    buffer = (ctypes.c_char * 4096)()
    d.link((PTX, KERNEL), options=[(ERROR, ctypes.addressof(buffer))], info=None, error=None)


linked("create/null-buffer-with-size", (PTX, KERNEL), options=[(ERROR, 0), (ERROR_SIZE, 4096)], info=None, error=None)


@case("create/size-before-buffer")
def _(d: Recorder) -> None:
    d.start()
    buffer = (ctypes.c_char * 4096)()
    d.link(
        (PTX, MAIN + b"garbage"),
        options=[(ERROR_SIZE, 4096), (ERROR, ctypes.addressof(buffer)), (INFO_SIZE, 0), (INFO, 0)],
        info=None,
        error=None,
    )


for _name, _key in {"info": INFO, "error": ERROR}.items():

    @case(f"create/{_name}-size-before-buffer")
    def _(d: Recorder, key: int = _key, name: str = _name) -> None:
        d.start()
        buffer = (ctypes.c_char * 4096)()
        state = d.create((key + 1, 4096), (key, ctypes.addressof(buffer)), (VERBOSE, 1), info=None, error=None)
        d.add(state, PTX, MAIN)
        d.add(state, PTX, USER)
        d.add(state, PTX, sample("13.2/main.ptx"))
        d.complete(state)
        d.emit({"call": "(slot)", f"{name}_size": state.values[0] & 0xFFFFFFFF, name: buffer.value.decode()})
        d.destroy(state)


for _size in (0, 1, 2, 8, 50, 96, 97, 98, 99, 194, 195, 196):

    @case(f"log/error-of-{_size}")
    def _(d: Recorder, size: int = _size) -> None:
        d.start()
        state = d.create(error=size)
        for _ in range(3):
            d.add(state, PTX, sample("13.2/main.ptx"))
        d.complete(state)
        d.destroy(state)


for _size in (0, 1, 2, 16, 64, 100, 176, 177, 178):

    @case(f"log/info-of-{_size}")
    def _(d: Recorder, size: int = _size) -> None:
        d.start()
        d.link((PTX, MAIN), (PTX, USER), options=[(VERBOSE, 1)], info=size)


linked("log/only-info", (PTX, MAIN), (PTX, b"nonsense"), options=[(VERBOSE, 1)], error=None)


linked("log/only-error", (PTX, MAIN), (PTX, b"nonsense"), options=[(VERBOSE, 1)], info=None)


added("log/stays-after-success", (PTX, sample("13.2/main.ptx")), (PTX, MAIN), (PTX, USER))


added(
    "log/grows-over-kinds-of-error",
    (PTX, b"nonsense", "first"),
    (PTX, sample("13.2/main.ptx"), "second"),
    (PTX, MAIN.replace(b"\tret;", b"\trett;"), "third"),
    (CUBIN, b"nonsense", "fourth"),
    (FATBIN, b"nonsense", "fifth"),
)


linked("log/buffer-of-zeros", (PTX, sample("13.2/main.ptx")), fill=0)


# -- add: arguments


@case("add/null-state")
def _(d: Recorder) -> None:
    d.start()
    d.add(None, PTX, KERNEL)
    d.add_file(None, PTX, "/nonexistent")
    d.complete(None)
    d.destroy(None)


@case("add/null-state-before-init")
def _(d: Recorder) -> None:
    d.add(None, PTX, KERNEL)
    d.add_file(None, PTX, "/nonexistent")
    d.complete(None)
    d.destroy(None)


for _kind in (-1, 6, 7, 10, 99):

    @case(f"add/type-{_kind}")
    def _(d: Recorder, kind: int = _kind) -> None:
        d.start()
        state = d.create()
        d.add(state, kind, KERNEL + b"\0")
        d.complete(state)
        d.destroy(state)


for _name, _kind in KINDS.items():

    @case(f"add/empty-{_name}")
    def _(d: Recorder, kind: int = _kind) -> None:
        d.start()
        state = d.create()
        d.add(state, kind, b"", terminate=False)
        d.complete(state)
        d.destroy(state)

    @case(f"add/null-data-{_name}")
    def _(d: Recorder, kind: int = _kind) -> None:
        d.start()
        state = d.create()
        d.add(state, kind, None)
        d.complete(state)
        d.destroy(state)

    @case(f"add/null-data-with-size-{_name}")
    def _(d: Recorder, kind: int = _kind) -> None:
        d.start()
        state = d.create()
        d.add(state, kind, None, size=100)
        d.complete(state)
        d.destroy(state)

    @case(f"add/text-as-{_name}")
    def _(d: Recorder, kind: int = _kind) -> None:
        d.start()
        state = d.create()
        d.add(state, kind, b"this is no image of any kind, only a sentence that is long enough to be read\0")
        d.complete(state)
        d.destroy(state)


added("add/null-name", (PTX, MAIN, None))


@case("add/null-name-bad-input")
def _(d: Recorder) -> None:
    d.start()
    state = d.create()
    d.add(state, PTX, b"nonsense", None)
    d.add(state, FATBIN, b"nonsense", None)
    d.add(state, OBJECT, sample("13.0/user.cubin"), None)
    d.add(state, LIBRARY, b"nonsense", None)
    d.destroy(state)


added("add/named-undefined", (PTX, MAIN, "a name with spaces"), options=[SM_90])


@case("add/unterminated")
def _(d: Recorder) -> None:
    d.start()
    state = d.create()
    d.add(state, PTX, MAIN, terminate=False)
    d.add(state, PTX, USER, terminate=False)
    d.complete(state)
    d.destroy(state)


@case("add/size-cuts-text")
def _(d: Recorder) -> None:
    d.start()
    state = d.create()
    d.add(state, PTX, USER, size=len(USER) // 2)
    d.complete(state)
    d.destroy(state)


linked("add/empty-module", (PTX, ptx("")))


for _key, _value in (
    (MAX_REGISTERS, 32),
    (OPTIMIZATION_LEVEL, 0),
    (DEBUG, 1),
    (LINE_INFO, 1),
    (VERBOSE, 1),
    (WALL_TIME, 0),
    (TARGET, 90),
    (FROM_CONTEXT, 0),
    (THREADS_PER_BLOCK, 128),
    (CACHE_MODE, 1),
    (FALLBACK, 0),
    (20, 1),
    (30, 1),
    (31, 1),
    (32, 128),
    (33, 1),
    (34, 2),
    (999, 1),
):

    @case(f"add/option-{_key}")
    def _(d: Recorder, key: int = _key, value: int = _value) -> None:
        d.start()
        state = d.create()
        d.add(state, PTX, MAIN, options=[(key, value)])
        d.add(state, PTX, USER)
        d.complete(state)
        d.destroy(state)


for _key in (INFO, ERROR):

    @case(f"add/log-option-{_key}")
    def _(d: Recorder, key: int = _key) -> None:
        d.start()
        buffer = (ctypes.c_char * 512)()
        state = d.create()
        d.add(state, PTX, b"nonsense", options=[(key, ctypes.addressof(buffer)), (key + 1, 512)])
        d.complete(state)
        d.destroy(state)


@case("add/option-arrays-null")
def _(d: Recorder) -> None:
    d.start()
    state = d.create()
    d.call("cuLinkAddData_v2", state.handle, PTX, KERNEL + b"\0", ctypes.c_size_t(len(KERNEL) + 1), b"k", 1, None, None)
    d.destroy(state)


# -- kinds: sound and mislabelled

IMAGES = {
    "ptx": MAIN + b"\0",
    "ltoir": sample("13.0/user.ltoir"),
    "old-ltoir": sample("12.9/user.ltoir"),
    "cubin": USER_CUBIN,
    "linked-cubin": sample("13.0/linked.cubin"),
    "fatbin": sample("nvcc/user.fatbin"),
    "plain-fatbin": sample("nvcc/user-plain.fatbin"),
    "lto-fatbin": sample("nvcc/user-lto.fatbin"),
    "object": sample("nvcc/user.o"),
    "lto-object": sample("nvcc/user-lto.o"),
    "library": sample("nvcc/user.a"),
}
for _image, _data in IMAGES.items():
    for _name, _kind in KINDS.items():

        @case(f"kind/{_image}-as-{_name}")
        def _(d: Recorder, data: bytes = _data, kind: int = _kind) -> None:
            d.start()
            state = d.create()
            d.add(state, kind, data, terminate=False)
            d.complete(state)
            d.destroy(state)


for _name, _inputs in {
    "ptx-ptx": ((PTX, MAIN), (PTX, USER)),
    "user-first": ((PTX, USER), (PTX, MAIN)),
    "cubin-cubin": ((CUBIN, MAIN_CUBIN), (CUBIN, USER_CUBIN)),
    "ptx-cubin": ((PTX, MAIN), (CUBIN, USER_CUBIN)),
    "cubin-ptx": ((CUBIN, MAIN_CUBIN), (PTX, USER)),
    "ptx-fatbin": ((PTX, MAIN), (FATBIN, IMAGES["fatbin"])),
    "ptx-plain-fatbin": ((PTX, MAIN), (FATBIN, IMAGES["plain-fatbin"])),
    "ptx-object": ((PTX, MAIN), (OBJECT, IMAGES["object"])),
    "ptx-library": ((PTX, MAIN), (LIBRARY, IMAGES["library"])),
    "library-first": ((LIBRARY, IMAGES["library"]), (PTX, MAIN)),
    "ptx-lto-object": ((PTX, MAIN), (OBJECT, IMAGES["lto-object"])),
    "old-ptx": ((PTX, sample("12.9/main.ptx")), (PTX, sample("12.9/user.ptx"))),
    "old-cubins": ((CUBIN, sample("12.9/main.cubin")), (CUBIN, sample("12.9/user.cubin"))),
    "old-and-new": ((CUBIN, sample("12.9/main.cubin")), (PTX, USER)),
    "new-ptx": ((PTX, sample("13.2/main.ptx")), (PTX, USER)),
    "newest-ptx": ((PTX, sample("13.5/main.ptx")), (PTX, USER)),
    "new-cubins": ((CUBIN, sample("13.2/main.cubin")), (CUBIN, sample("13.2/user.cubin"))),
    "newest-cubins": ((CUBIN, sample("13.5/main.cubin")), (CUBIN, sample("13.5/user.cubin"))),
    "cubin-of-another-arch": ((PTX, MAIN), (CUBIN, sample("13.0/user-sm_100.cubin"))),
    "relinked": ((CUBIN, sample("13.0/linked.cubin")), (PTX, USER)),
    "nothing": (),
    "lone-kernel": ((PTX, KERNEL),),
    "lone-function": ((PTX, USER),),
    "undefined": ((PTX, MAIN),),
    "undefined-cubin": ((CUBIN, MAIN_CUBIN),),
    "duplicate-ptx": ((PTX, MAIN), (PTX, USER), (PTX, USER)),
    "duplicate-cubin": ((CUBIN, USER_CUBIN), (CUBIN, USER_CUBIN)),
    "duplicate-mixed": ((PTX, USER), (CUBIN, USER_CUBIN)),
    "duplicate-kernel": ((PTX, KERNEL), (PTX, KERNEL)),
    "syntax-error": ((PTX, MAIN.replace(b"\tret;", b"\trett;")), (PTX, USER)),
    "target-too-high": ((PTX, MAIN.replace(b"sm_90", b"sm_100")),),
    "target-lower": ((PTX, MAIN.replace(b"sm_90", b"sm_80")), (PTX, USER)),
    "unknown-target": ((PTX, MAIN.replace(b"sm_90", b"sm_91")),),
    "arch-specific": ((PTX, KERNEL.replace(b"sm_90", b"sm_90a")),),
    "two-errors": ((PTX, MAIN.replace(b"\tret;", b"\trett;\n\trettt;")),),
    "no-version": ((PTX, b".target sm_90\n.address_size 64\n"),),
    "only-comments": ((PTX, b"// nothing\n"),),
    "crlf": ((PTX, KERNEL.replace(b"\n", b"\r\n")),),
    "ptx-9.1": ((PTX, KERNEL.replace(b"9.0", b"9.1")),),
    "ptx-9.9": ((PTX, KERNEL.replace(b"9.0", b"9.9")),),
    "ptx-8.0": ((PTX, KERNEL.replace(b"9.0", b"8.0")),),
    "ptx-1.0": ((PTX, KERNEL.replace(b"9.0", b"1.0")),),
    "weak-twice": ((PTX, ptx(".weak .func f() { ret; }")), (PTX, ptx(".weak .func f() { ret; }"))),
    "weak-and-strong": ((PTX, ptx(".weak .func f() { ret; }")), (PTX, ptx(".visible .func f() { ret; }"))),
    "variable-twice": ((PTX, ptx(".visible .global .u32 v = 1;")), (PTX, ptx(".visible .global .u32 v = 2;"))),
    "undefined-variable": (
        (PTX, ptx(".extern .global .u32 v;\n.visible .entry k() { .reg .u32 r; ld.global.u32 r, [v]; ret; }")),
    ),
    "many": tuple((PTX, ptx(f".visible .func f{n}() {{ ret; }}")) for n in range(40)),
}.items():
    linked(f"link/{_name}", *_inputs)
    linked(f"link-sm_90/{_name}", *_inputs, options=[SM_90])

# -- a symbol that is not there, in every way to ask for the link


@case("undefined/after-success")
def _(d: Recorder) -> None:
    d.start()
    d.link((PTX, MAIN), (PTX, USER))
    d.link((PTX, MAIN))


@case("undefined/after-one-with-target")
def _(d: Recorder) -> None:
    d.start()
    d.link((PTX, MAIN), options=[SM_90])
    d.link((PTX, MAIN))


@case("undefined/created-context")
def _(d: Recorder) -> None:
    d.library.cuInit(0)
    context = ctypes.c_void_p()
    d.call("cuCtxCreate_v2", ctypes.byref(context), 0, 0)
    d.link((PTX, MAIN))


@case("undefined/v1")
def _(d: Recorder) -> None:
    d.start()
    state = d.create(function="cuLinkCreate")
    d.add(state, PTX, MAIN, function="cuLinkAddData")
    d.complete(state)
    d.destroy(state)


@case("undefined/complete-twice")
def _(d: Recorder) -> None:
    d.start()
    state = d.create()
    d.add(state, PTX, MAIN)
    d.complete(state)
    d.complete(state)
    d.destroy(state)


added("undefined/after-failed-add", (PTX, sample("13.2/main.ptx")), (PTX, MAIN))


added("undefined/named-main", (PTX, MAIN, "main"))


for _name, _keywords in {
    "no-logs": {"info": None, "error": None},
    "only-error-log": {"info": None},
    "only-info-log": {"error": None},
    "from-context": {"options": [(FROM_CONTEXT, 0)]},
    "level-0": {"options": [(OPTIMIZATION_LEVEL, 0)]},
    "level-4": {"options": [(OPTIMIZATION_LEVEL, 4)]},
    "debug": {"options": [(DEBUG, 1)]},
    "verbose": {"options": [(VERBOSE, 1)]},
    "kernels": {"options": [(25, ["apply_transform"]), (26, 1)]},
    "lto": {"options": [(20, 1)]},
    "pic": {"options": [(30, 1)]},
    "cache-mode": {"options": [(CACHE_MODE, 1)]},
    "registers": {"options": [(MAX_REGISTERS, 32)]},
    "wall-time": {"options": [(WALL_TIME, 0)]},
    "target-0x1005a": {"options": [(TARGET, 0x1005A)]},
    "target-100": {"options": [(TARGET, 100)]},
}.items():
    linked(f"undefined/{_name}", (PTX, MAIN), **_keywords)

for _name, _data in {
    "sm_80": MAIN.replace(b"sm_90", b"sm_80"),
    "sm_50": MAIN.replace(b"sm_90", b"sm_50"),
    "sm_90a": MAIN.replace(b"sm_90", b"sm_90a"),
    "ptx-8.8": sample("12.9/main.ptx"),
    "ptx-8.0": MAIN.replace(b".version 9.0", b".version 8.0"),
}.items():
    linked(f"undefined/{_name}", (PTX, _data))
linked("undefined/old-cubin", (CUBIN, sample("12.9/main.cubin")))
linked(
    "undefined/other-cubin",
    (PTX, MAIN),
    (CUBIN, sample("13.0/main.cubin").replace(b"apply_transform", b"apply_transfORM")),
)


for _name, _first in {"ptx-error": (PTX, MAIN.replace(b"\tret;", b"\trett;")), "no-ptx": (PTX, b"nonsense")}.items():
    linked(f"undefined/after-{_name}", _first, (PTX, MAIN))
for _name, _options in {"sm_90": [SM_90], "context": [(FROM_CONTEXT, 0)], "level-3": [(OPTIMIZATION_LEVEL, 3)]}.items():
    linked(f"undefined/after-failed-add-{_name}", (PTX, sample("13.2/main.ptx")), (PTX, MAIN), options=_options)
linked("undefined/before-failed-add", (PTX, MAIN), (PTX, sample("13.2/main.ptx")))
linked("undefined/cubin-after-failed-add", (PTX, sample("13.2/main.ptx")), (CUBIN, MAIN_CUBIN))
linked("undefined/after-no-object", (OBJECT, MAIN + b"\0"), (PTX, MAIN))
linked("undefined/after-no-library", (LIBRARY, bytes(300)), (PTX, MAIN))
linked("undefined/after-no-fatbin", (FATBIN, bytes(300)), (PTX, MAIN))
linked("undefined/twice-after-failed-add", (PTX, sample("13.2/main.ptx")), (PTX, MAIN), (PTX, USER), (PTX, USER))

# what a PTX that was refused in one state does to later ones
TOO_NEW, WRONG = sample("13.2/main.ptx"), MAIN.replace(b"\tret;", b"\trett;")
for _name, _links in {
    "too-new": [(TOO_NEW,)],
    "wrong": [(WRONG,)],
    "no-ptx": [(b"nonsense",)],
    "too-new-and-good": [(TOO_NEW,), (MAIN, USER)],
    "too-new-and-wrong": [(TOO_NEW,), (WRONG,)],
    "wrong-and-too-new": [(WRONG,), (TOO_NEW,)],
    "too-new-and-duplicate": [(TOO_NEW,), (USER, USER)],
}.items():

    @case(f"later/undefined-after-{_name}")
    def _(d: Recorder, links: list[tuple[bytes, ...]] = _links) -> None:
        d.start()
        for texts in [*links, (MAIN,), (MAIN,)]:
            d.link(*((PTX, text) for text in texts))


@case("later/undefined-on-another-thread")
def _(d: Recorder) -> None:
    d.start()
    d.link((PTX, TOO_NEW))

    def elsewhere() -> None:
        d.start()
        d.link((PTX, MAIN))

    d.in_thread(elsewhere)
    d.link((PTX, MAIN))


# -- profiles: which architecture the driver compiles for

for _target in (90, 0x1005A, 100, 0x10064, 0x20064, 120, 0x10078, 0x20078):
    for _suffix in ("", "a", "f"):
        _arch = "90" if _target & 0xFF == 90 else str(_target & 0xFF)
        linked(
            f"profile/{_target:#x}-sm_{_arch}{_suffix}",
            (PTX, KERNEL.replace(b"sm_90", f"sm_{_arch}{_suffix}".encode())),
            options=[(TARGET, _target)],
        )
for _suffix in ("a", "f"):
    linked(f"profile/none-sm_90{_suffix}", (PTX, KERNEL.replace(b"sm_90", f"sm_90{_suffix}".encode())))
for _name, _options in {"registers": [(MAX_REGISTERS, 16)], "level-0": [(OPTIMIZATION_LEVEL, 0)]}.items():
    linked(f"profile/90-{_name}", (PTX, MAIN), (PTX, USER), options=[SM_90, *_options])
    linked(f"profile/90a-{_name}", (PTX, MAIN), (PTX, USER), options=[(TARGET, 0x1005A), *_options])

# -- damage

for _image in ("cubin", "linked-cubin", "fatbin", "plain-fatbin", "object", "library", "ptx"):
    _kind = KINDS[_image.rsplit("-", 1)[-1]]
    for _part, _length in {"20": 20, "64": 64, "half": 0.5, "most": 0.95, "byte": -1}.items():

        @case(f"damage/{_image}-cut-{_part}")
        def _(d: Recorder, data: bytes = IMAGES[_image], kind: int = _kind, length: float = _length) -> None:
            d.start()
            state = d.create()
            d.add(
                state,
                kind,
                data[: int(len(data) * length) if isinstance(length, float) else length],
                terminate=False,
                guarded=True,
            )
            d.complete(state)
            d.destroy(state)


for _name, _data in {
    "zeros": bytes(300),
    "elf-magic-only": b"\x7fELF",
    "elf-garbage": b"\x7fELF\x02\x01\x01\x33\x07" + bytes(range(200)),
    "elf-of-the-host": sample("nvcc/user.o").replace(b"__nv_relfatbin", b"__no_relfatbin"),
    "wrong-class": b"\x7fELF\x01" + USER_CUBIN[5:],
    "wrong-machine": USER_CUBIN[:18] + b"\x3e\x00" + USER_CUBIN[20:],
}.items():

    @case(f"damage/cubin-{_name}")
    def _(d: Recorder, data: bytes = _data) -> None:
        d.start()
        state = d.create()
        d.add(state, CUBIN, data, guarded=True)
        d.complete(state)
        d.destroy(state)


# -- options and what they change

for _name, _options in {
    "registers-16": [(MAX_REGISTERS, 16)],
    "registers-32": [(MAX_REGISTERS, 32)],
    "registers-255": [(MAX_REGISTERS, 255)],
    "registers-256": [(MAX_REGISTERS, 256)],
    "registers-0": [(MAX_REGISTERS, 0)],
    "threads-128": [(THREADS_PER_BLOCK, 128)],
    "wall-time": [(WALL_TIME, 0)],
    "level-0": [(OPTIMIZATION_LEVEL, 0)],
    "level-1": [(OPTIMIZATION_LEVEL, 1)],
    "level-2": [(OPTIMIZATION_LEVEL, 2)],
    "level-3": [(OPTIMIZATION_LEVEL, 3)],
    "level-4": [(OPTIMIZATION_LEVEL, 4)],
    "level-5": [(OPTIMIZATION_LEVEL, 5)],
    "debug": [(DEBUG, 1)],
    "debug-off": [(DEBUG, 0)],
    "line-info": [(LINE_INFO, 1)],
    "verbose": [(VERBOSE, 1)],
    "verbose-sm_90": [(VERBOSE, 1), SM_90],
    "verbose-registers": [(VERBOSE, 1), (MAX_REGISTERS, 16)],
    "verbose-debug": [(VERBOSE, 1), (DEBUG, 1)],
    "cache-mode-0": [(CACHE_MODE, 0)],
    "cache-mode-1": [(CACHE_MODE, 1)],
    "cache-mode-2": [(CACHE_MODE, 2)],
    "cache-mode-9": [(CACHE_MODE, 9)],
    "fallback": [(FALLBACK, 1)],
    "lto": [(20, 1)],
    "lto-off": [(20, 0)],
    "ftz": [(21, 1)],
    "prec-div": [(22, 0)],
    "prec-sqrt": [(23, 0)],
    "fma": [(24, 0)],
    "kernels": [(25, ["apply_transform"]), (26, 1)],
    "kernels-none": [(25, ["nothing"]), (26, 1)],
    "kernels-part": [(25, ["apply"]), (26, 1)],
    "kernels-without-count": [(25, ["apply_transform"])],
    "kernels-count-0": [(25, ["apply_transform"]), (26, 0)],
    "kernels-null": [(25, 0), (26, 1)],
    "variables": [(27, ["v"]), (28, 1)],
    "unused-variables": [(29, 1)],
    "pic": [(30, 1)],
    "min-cta": [(31, 2)],
    "max-threads": [(32, 128)],
    "override": [(33, 1)],
    "split": [(34, 2)],
    "split-0": [(34, 0)],
}.items():
    linked(f"option/{_name}", (PTX, MAIN), (PTX, USER), options=_options)

# -- order of calls


@case("order/complete-twice")
def _(d: Recorder) -> None:
    d.start()
    state = d.create()
    d.add(state, PTX, MAIN)
    d.add(state, PTX, USER)
    d.complete(state)
    d.complete(state)
    d.destroy(state)


@case("order/add-after-complete")
def _(d: Recorder) -> None:
    d.start()
    state = d.create()
    d.add(state, PTX, MAIN)
    d.add(state, PTX, USER)
    d.complete(state)
    d.add(state, PTX, KERNEL)
    d.complete(state)
    d.destroy(state)


@case("order/add-after-failed-complete")
def _(d: Recorder) -> None:
    d.start()
    state = d.create(SM_90)
    d.add(state, PTX, MAIN)
    d.complete(state)
    d.add(state, PTX, USER)
    d.complete(state)
    d.destroy(state)


@case("order/destroy-at-once")
def _(d: Recorder) -> None:
    d.start()
    d.destroy(d.create())


@case("order/destroy-without-complete")
def _(d: Recorder) -> None:
    d.start()
    state = d.create()
    d.add(state, PTX, MAIN)
    d.destroy(state)


@case("order/complete-without-outputs")
def _(d: Recorder) -> None:
    d.start()
    state = d.create()
    d.add(state, PTX, KERNEL)
    d.complete(state, image=False, size=False)
    d.complete(state, image=True, size=False)
    d.complete(state, image=False, size=True)
    d.complete(state)
    d.destroy(state)


@case("order/failed-add-then-good")
def _(d: Recorder) -> None:
    d.start()
    state = d.create()
    for data in (b"nonsense", sample("13.2/main.ptx"), MAIN, b"nonsense", USER):
        d.add(state, PTX, data)
    d.complete(state)
    d.destroy(state)


added("order/failed-cubin-then-good", (CUBIN, sample("13.2/main.cubin")), (PTX, MAIN), (PTX, USER))


added("order/only-failed-adds", (PTX, sample("13.2/main.ptx")), (PTX, sample("13.2/main.ptx")))


@case("order/two-states-in-turn")
def _(d: Recorder) -> None:
    d.start()
    first, second = d.create(), d.create()
    d.add(first, PTX, MAIN)
    d.add(second, PTX, sample("13.2/main.ptx"))
    d.add(first, PTX, USER)
    d.add(second, PTX, KERNEL)
    d.complete(second)
    d.complete(first)
    d.destroy(first)
    d.destroy(second)


@case("order/after-failed-create")
def _(d: Recorder) -> None:
    d.start()
    d.create((999, 1))
    d.link((PTX, KERNEL))


# -- contexts and threads


@case("context/none-at-add")
def _(d: Recorder) -> None:
    d.start()
    state = d.create()
    d.library.cuCtxSetCurrent(None)
    d.add(state, PTX, MAIN)
    d.add(state, PTX, USER)
    d.complete(state)
    d.destroy(state)


@case("context/none-at-destroy")
def _(d: Recorder) -> None:
    d.start()
    state = d.create()
    d.add(state, PTX, KERNEL)
    d.complete(state)
    d.library.cuCtxSetCurrent(None)
    d.destroy(state)


@case("context/another-thread")
def _(d: Recorder) -> None:
    d.start()
    state = d.create()

    def elsewhere() -> None:
        d.add(state, PTX, KERNEL)
        d.complete(state)
        d.destroy(state)

    d.in_thread(elsewhere)


@case("context/created")
def _(d: Recorder) -> None:
    d.library.cuInit(0)
    context = ctypes.c_void_p()
    d.call("cuCtxCreate_v2", ctypes.byref(context), 0, 0)
    d.link((PTX, MAIN), (PTX, USER))


@case("context/destroyed-before-complete")
def _(d: Recorder) -> None:
    d.library.cuInit(0)
    context = ctypes.c_void_p()
    d.call("cuCtxCreate_v2", ctypes.byref(context), 0, 0)
    state = d.create()
    d.add(state, PTX, KERNEL)
    d.call("cuCtxDestroy_v2", context)
    d.complete(state)
    d.destroy(state)


# -- files


def written(data: bytes, name: str) -> str:
    """Path of a temporary file; the folder goes with the process."""
    path = Path(tempfile.mkdtemp()) / name
    path.write_bytes(data)
    return str(path)


for _image, _name in (
    ("ptx", "ptx"),
    ("cubin", "cubin"),
    ("fatbin", "fatbin"),
    ("object", "object"),
    ("library", "library"),
    ("ltoir", "nvvm"),
    ("ptx", "cubin"),
    ("cubin", "ptx"),
    ("library", "object"),
    ("object", "library"),
):

    @case(f"file/{_image}-as-{_name}")
    def _(d: Recorder, data: bytes = IMAGES[_image], kind: int = KINDS[_name], name: str = _image) -> None:
        d.start()
        state = d.create()
        if name != "ptx":
            d.add(state, PTX, MAIN)
        else:
            d.add(state, PTX, USER)
        d.add_file(state, kind, written(data.rstrip(b"\0") if name == "ptx" else data, f"image.{name}"))
        d.complete(state)
        d.destroy(state)


for _name, _path in {"missing": "/nonexistent/file.ptx", "folder": "/tmp", "empty-path": "", "null": None}.items():

    @case(f"file/{_name}")
    def _(d: Recorder, path: str | None = _path) -> None:
        d.start()
        state = d.create()
        d.add_file(state, PTX, path)
        d.add_file(state, CUBIN, path)
        d.complete(state)
        d.destroy(state)


@case("file/empty")
def _(d: Recorder) -> None:
    d.start()
    state = d.create()
    path = written(b"", "empty.ptx")
    for kind in KINDS.values():
        d.add_file(state, kind, path)
    d.complete(state)
    d.destroy(state)


@case("file/new-ptx")
def _(d: Recorder) -> None:
    d.start()
    state = d.create()
    d.add_file(state, PTX, written(sample("13.2/main.ptx"), "new.ptx"))
    d.complete(state)
    d.destroy(state)
