"""The cases of cases.txt, and those that need more than its words.

Recorded from a real driver, replayed on the emulated one.
"""

import ctypes
import re
import shlex
import tempfile
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import Any

from campaigns.hardware.waits import expanded

from .recorder import CUBIN, ERROR, FATBIN, INFO, LIBRARY, NVVM, OBJECT, PTX, VERBOSE, Recorder, State, sample

Case = Callable[[Recorder], None]

KINDS = {"cubin": CUBIN, "ptx": PTX, "fatbin": FATBIN, "object": OBJECT, "library": LIBRARY, "nvvm": NVVM}
OPTIONS = (
    "registers", "threads", "wall-time", "info", "info-size", "error", "error-size", "level", "from-context", "target",
    "fallback", "debug", "verbose", "line-info", "cache-mode", "15", "16", "17", "18", "19", "lto", "ftz", "prec-div",
    "prec-sqrt", "fma", "kernels", "26", "27", "28", "unused-variables", "pic", "31", "32", "override", "split",
)  # fmt: skip


def ptx(text: str, version: str = "9.0", target: str = "sm_90") -> bytes:
    """A PTX module around some directives."""
    return f".version {version}\n.target {target}\n.address_size 64\n{text}\n".encode()


MAIN, USER, NEW = sample("13.0/main.ptx"), sample("13.0/user.ptx"), sample("13.2/main.ptx")
KERNEL = ptx(".visible .entry kernel() { ret; }")
_CUBIN, _EXTERN = sample("13.0/user.cubin"), ".extern .global .u32 v;\n"
IMAGES = {
    "main": MAIN,
    "user": USER,
    "new": NEW,
    "kernel": KERNEL,
    "kernel0": KERNEL + b"\0",
    "main-cubin": sample("13.0/main.cubin"),
    # by their kinds
    "ptx": MAIN + b"\0",
    "ltoir": sample("13.0/user.ltoir"),
    "old-ltoir": sample("12.9/user.ltoir"),
    "cubin": _CUBIN,
    "linked-cubin": sample("13.0/linked.cubin"),
    "fatbin": sample("nvcc/user.fatbin"),
    "plain-fatbin": sample("nvcc/user-plain.fatbin"),
    "lto-fatbin": sample("nvcc/user-lto.fatbin"),
    "object": sample("nvcc/user.o"),
    "lto-object": sample("nvcc/user-lto.o"),
    "library": sample("nvcc/user.a"),
    # PTX
    "wrong": MAIN.replace(b"\tret;", b"\trett;"),
    "twice-wrong": MAIN.replace(b"\tret;", b"\trett;\n\trettt;"),
    "main+garbage": MAIN + b"garbage",
    "module": ptx(""),
    "no-version": b".target sm_90\n.address_size 64\n",
    "comment": b"// nothing\n",
    "crlf": KERNEL.replace(b"\n", b"\r\n"),
    "weak": ptx(".weak .func f() { ret; }"),
    "strong": ptx(".visible .func f() { ret; }"),
    "variable": ptx(".visible .global .u32 v = 1;"),
    "undefined-variable": ptx(f"{_EXTERN}.visible .entry k() {{ .reg .u32 r; ld.global.u32 r, [v]; ret; }}"),
    **{f"f{number}": ptx(f".visible .func f{number}() {{ ret; }}") for number in range(40)},
    # no images
    "empty": b"",
    "nonsense": b"nonsense",
    "sentence": b"this is no image of any kind, only a sentence that is long enough to be read\0",
    "zeros": bytes(300),
    "elf-magic-only": b"\x7fELF",
    "elf-garbage": b"\x7fELF\x02\x01\x01\x33\x07" + bytes(range(200)),
    "elf-of-the-host": sample("nvcc/user.o").replace(b"__nv_relfatbin", b"__no_relfatbin"),
    "wrong-class": b"\x7fELF\x01" + _CUBIN[5:],
    "wrong-machine": _CUBIN[:18] + b"\x3e\x00" + _CUBIN[20:],
}


def image(text: str) -> bytes | None:
    """An image, with text in it replaced."""
    name, *changes = re.findall(r"^[^[]+|(?<=\[)[^]]+", text)
    if name == "null":
        return None
    data = IMAGES[name] if name in IMAGES else sample(name)
    for change in changes:
        before, _, after = change.partition("=")
        data = data.replace(before.encode(), after.encode())
    return data


def written(data: bytes, name: str) -> str:
    """Path of a temporary file; the folder goes with the process."""
    path = Path(tempfile.mkdtemp()) / name
    path.write_bytes(data)
    return str(path)


class Step:
    """A step of a case: its verb, inputs, flags and keywords, and the options, whose memory it keeps."""

    def __init__(self, text: str) -> None:
        self.verb, *words = shlex.split(text)
        self.inputs: list[tuple[int, str]] = []
        self.options: list[tuple[int, Any]] = []
        self.keywords: dict[str, Any] = {}
        self.flags: set[str] = set()
        self._keep: list[Any] = []
        for word in words:
            key, _, value = word.partition("=")
            if match := re.match(r"([\w-]+):(.*)", word):
                kind = KINDS[match[1]] if match[1] in KINDS else int(match[1])
                names = [f"f{number}" for number in range(40)] if match[2] == "many" else [match[2]]
                self.inputs += [(kind, name) for name in names]
            elif key in ("info", "error", "fill", "name", "size", "cut"):
                self.keywords[key] = None if value == "none" else int(value) if value.isdecimal() else value
            elif "=" in word:
                self.options.append((OPTIONS.index(key) if key in OPTIONS else int(key), self._value(value)))
            elif word == "-sm_90":
                self.options.append((OPTIONS.index("target"), 90))
            else:
                self.flags.add(word)

    def _value(self, text: str) -> Any:
        if text[0] == "[":
            return [text[1:-1]]
        if text[0] != "@":
            return int(text, 0)
        self._keep.append(ctypes.create_string_buffer(int(text[1:])))
        return ctypes.addressof(self._keep[-1])

    def add(self, d: Recorder, state: State | None) -> None:
        """Add the input to a state."""
        ((kind, name),) = self.inputs
        data = image(name)
        if "cut" in self.keywords and data is not None:
            cut = self.keywords.pop("cut")
            shares = {"half": int(len(data) * 0.5), "most": int(len(data) * 0.95), "byte": -1}
            data = data[: shares.get(cut, cut)]
        if self.keywords.get("size") == "half":
            self.keywords["size"] = len(data or b"") // 2
        d.add(
            state,
            kind,
            data,
            options=self.options,
            terminate="open" not in self.flags,
            guarded="guarded" in self.flags,
            function="cuLinkAddData" if "v1" in self.flags else "cuLinkAddData_v2",
            **self.keywords,
        )

    def add_file(self, d: Recorder, state: State | None) -> None:
        ((kind, name),) = self.inputs
        data, _, file = name.partition("@")
        d.add_file(state, kind, written(image(data) or b"", file) if file else None if name == "none" else name)


def perform(text: str, d: Recorder) -> None:  # noqa: C901 (a branch for each verb)
    """Do the steps of a case."""
    state: State | None = None
    context = ctypes.c_void_p()
    steps = [Step(step) for step in text.split(" | ")]
    if steps[0].verb != "cold":
        d.start()
    for step in steps:
        match step.verb:
            case "create":
                function = "cuLinkCreate" if "v1" in step.flags else "cuLinkCreate_v2"
                state = d.create(*step.options, function=function, **step.keywords)
            case "link":
                inputs = [(kind, image(name) or b"") for kind, name in step.inputs]
                d.link(*inputs, options=step.options, **step.keywords)
            case "add":
                step.add(d, state)
            case "file":
                step.add_file(d, state)
            case "complete":
                d.complete(state, image="no-image" not in step.flags, size="no-size" not in step.flags)
            case "destroy":
                d.destroy(state)
            case "init":
                d.library.cuInit(0)
            case "no-context":
                d.library.cuCtxSetCurrent(None)
            case "context":
                d.call("cuCtxCreate_v2", ctypes.byref(context), 0, 0)
            case "end-context":
                d.call("cuCtxDestroy_v2", context)


def read_cases() -> Iterator[tuple[str, Case]]:
    for line in Path(__file__).with_name("cases.txt").read_text(encoding="utf-8").splitlines():
        if not line or line[0] == "#":
            continue
        for made, steps in expanded(*line.split(": ", 1)):
            yield made, partial(perform, steps)


CASES = dict(read_cases())


def _null(arguments: tuple[Any, ...], d: Recorder) -> None:
    d.start()
    d.call("cuLinkCreate_v2", *arguments)


def _size_before_buffer(name: str, key: int, d: Recorder) -> None:
    d.start()
    buffer = (ctypes.c_char * 4096)()
    state = d.create((key + 1, 4096), (key, ctypes.addressof(buffer)), (VERBOSE, 1), info=None, error=None)
    for data in (MAIN, USER, NEW):
        d.add(state, PTX, data)
    d.complete(state)
    d.emit({"call": "(slot)", f"{name}_size": state.values[0] & 0xFFFFFFFF, name: buffer.value.decode()})
    d.destroy(state)


def _option_arrays_null(d: Recorder) -> None:
    d.start()
    state = d.create()
    d.call("cuLinkAddData_v2", state.handle, PTX, KERNEL + b"\0", ctypes.c_size_t(len(KERNEL) + 1), b"k", 1, None, None)
    d.destroy(state)


def _later(d: Recorder) -> None:
    perform("link ptx:new", d)
    d.in_thread(lambda: perform("link ptx:main", d))
    d.link((PTX, MAIN))


def _two_states_in_turn(d: Recorder) -> None:
    d.start()
    first, second = d.create(), d.create()
    for state, data in ((first, MAIN), (second, NEW), (first, USER), (second, KERNEL)):
        d.add(state, PTX, data)
    d.complete(second)
    d.complete(first)
    d.destroy(first)
    d.destroy(second)


def _another_thread(d: Recorder) -> None:
    d.start()
    state = d.create()

    def elsewhere() -> None:
        d.add(state, PTX, KERNEL)
        d.complete(state)
        d.destroy(state)

    d.in_thread(elsewhere)


_OUT = ctypes.byref(ctypes.c_void_p())
CASES |= {
    "create/null-state": partial(_null, (0, None, None, None)),
    "create/null-keys": partial(_null, (1, None, (ctypes.c_uint64 * 1)(1), _OUT)),
    "create/null-values": partial(_null, (1, (ctypes.c_int * 1)(VERBOSE), None, _OUT)),
    "create/info-size-before-buffer": partial(_size_before_buffer, "info", INFO),
    "create/error-size-before-buffer": partial(_size_before_buffer, "error", ERROR),
    "add/option-arrays-null": _option_arrays_null,
    "later/undefined-on-another-thread": _later,
    "order/two-states-in-turn": _two_states_in_turn,
    "context/another-thread": _another_thread,
}
