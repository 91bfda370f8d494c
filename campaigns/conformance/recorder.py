"""Running cases against a libcuda, real or emulated, and writing down what it answers.

Each case runs in a separate process, so that a driver that crashes is an answer too. A row is what one call left
behind: its result, both size slots, and what is new in both logs; `complete` adds facts about the image.
"""

from __future__ import annotations

import ctypes
import json
import mmap
import os
import signal
import threading
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

from pytest_cudalink.artifacts import inspect

ARTIFACTS = Path(__file__).parents[2] / "tests" / "data" / "artifacts"

# CUjit_option
INFO, ERROR, VERBOSE = 3, 5, 12
# CUjitInputType
CUBIN, PTX, FATBIN, OBJECT, LIBRARY, NVVM = range(6)


def sample(name: str) -> bytes:
    """One image of tests/data/artifacts; PTX without its final NUL."""
    data = (ARTIFACTS / name).read_bytes()
    return data.rstrip(b"\0") if name.endswith(".ptx") else data


def before_guard_page(data: bytes) -> int:
    """Address of a copy that ends at a page without access; the memory goes with the process."""
    page = mmap.PAGESIZE
    size = -(-len(data) // page) * page
    libc = ctypes.CDLL(None, use_errno=True)
    libc.mmap.restype = ctypes.c_void_p
    protection, flags = mmap.PROT_READ | mmap.PROT_WRITE, mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS
    start = libc.mmap(None, ctypes.c_size_t(size + page), protection, flags, -1, ctypes.c_long(0))
    assert libc.mprotect(ctypes.c_void_p(start + size), ctypes.c_size_t(page), 0) == 0
    ctypes.memmove(start + size - len(data), data, len(data))
    return start + size - len(data)


def option_arrays(options: Iterable[tuple[int, int]]) -> tuple[int, Any, Any]:
    """Number, keys and values of options."""
    pairs = list(options)
    size = max(len(pairs), 1)
    keys = (ctypes.c_int * size)(*(key for key, _ in pairs))
    return len(pairs), keys, (ctypes.c_uint64 * size)(*(value & (1 << 64) - 1 for _, value in pairs))


class State:
    """A CUlinkState, the memory it points to, and how much of its logs was seen."""

    def __init__(self, info: int | None, error: int | None, options: Iterable[tuple[int, Any]], fill: int) -> None:
        self.handle = ctypes.c_void_p()
        self.keep: list[Any] = []
        self.fill = bytes([fill])
        entries: list[tuple[int, int]] = []
        self.logs: dict[str, tuple[int, Any]] = {}  # the place of the size among the values, and the buffer
        for name, size, key in (("info", info, INFO), ("error", error, ERROR)):
            if size is not None:
                buffer = (ctypes.c_char * max(size, 8))(*[self.fill] * max(size, 8))
                self.logs[name] = len(entries) + 1, buffer
                entries += [(key, ctypes.addressof(buffer)), (key + 1, size)]
        entries += [(key, self._pointer(value)) for key, value in options]
        self.count, self.keys, self.values = option_arrays(entries)

    def _pointer(self, value: Any) -> int:
        if isinstance(value, int):
            return value
        names = (ctypes.c_char_p * len(value))(*(name.encode() for name in value))
        self.keep.append(names)
        return ctypes.addressof(names)

    def look(self) -> dict[str, Any]:
        """Both size slots and the text in front of the first untouched byte."""
        seen: dict[str, Any] = {}
        for name, (slot, buffer) in self.logs.items():
            seen[f"{name}_size"] = self.values[slot] & 0xFFFFFFFF
            text = bytes(buffer.raw).rstrip(self.fill)
            seen[name] = text.split(b"\0", 1)[0].decode("utf-8", "replace")
            seen[f"{name}_nul"] = b"\0" in text
        return seen


class Recorder:
    """One case's hands on the library; every method emits a row."""

    def __init__(self, library: ctypes.CDLL, emit: Callable[[dict[str, Any]], None]) -> None:
        self.library, self.emit = library, emit

    def start(self) -> None:
        """Initialize and make the primary context of device 0 current, without a row."""
        context = ctypes.c_void_p()
        self.library.cuInit(0)
        self.library.cuDevicePrimaryCtxRetain(ctypes.byref(context), 0)
        self.library.cuCtxSetCurrent(context)

    def call(self, function: str, *arguments: Any, state: State | None = None) -> None:
        """Any function; the row has its result, and what it left behind in a state."""
        code = getattr(self.library, function)(*arguments)
        self.emit({"call": function, "code": code, **(state.look() if state else {})})

    def create(
        self,
        *options: tuple[int, Any],
        info: int | None = 4096,
        error: int | None = 4096,
        function: str = "cuLinkCreate_v2",
        fill: int = 0xEE,
    ) -> State:
        """Create a state with two log buffers and further options."""
        state = State(info, error, options, fill)
        code = getattr(self.library, function)(state.count, state.keys, state.values, ctypes.byref(state.handle))
        self.emit({"call": function, "code": code, "state": bool(state.handle.value), **state.look()})
        return state

    def add(
        self,
        state: State | None,
        kind: int,
        data: bytes | None,
        name: str | None = "input",
        options: Iterable[tuple[int, int]] = (),
        size: int | None = None,
        terminate: bool = True,
        function: str = "cuLinkAddData_v2",
        guarded: bool = False,
    ) -> None:
        """Add bytes; PTX and text get their NUL unless told otherwise.

        With `guarded` they end where a page without access begins, so that what a driver reads behind them is a crash
        and not an answer that depends on what happens to lie there.
        """
        if data is not None and kind == PTX and terminate:
            data += b"\0"
        given = ctypes.c_void_p(before_guard_page(data)) if guarded and data is not None else data
        length = ctypes.c_size_t(len(data or b"") if size is None else size)
        text = name.encode() if name is not None else None
        self.call(function, state and state.handle, kind, given, length, text, *option_arrays(options), state=state)

    def add_file(self, state: State | None, kind: int, path: str | None) -> None:
        text = path.encode() if path is not None else None
        self.call("cuLinkAddFile_v2", state and state.handle, kind, text, *option_arrays(()), state=state)

    def complete(self, state: State | None, image: bool = True, size: bool = True) -> None:
        """Complete; the row says what the image is."""
        pointer, length = ctypes.c_void_p(), ctypes.c_size_t()
        to, written = ctypes.byref(pointer) if image else None, ctypes.byref(length) if size else None
        code = self.library.cuLinkComplete(state and state.handle, to, written)
        row = {"call": "cuLinkComplete", "code": code, "image": bool(pointer.value), "size": length.value}
        if pointer.value and length.value:
            row.update(facts(ctypes.string_at(pointer.value, length.value)))
        self.emit({**row, **(state.look() if state else {})})

    def destroy(self, state: State | None) -> None:
        """Destroy; the logs are looked at once more."""
        self.call("cuLinkDestroy", state and state.handle, state=state)

    def link(self, *inputs: tuple[int, bytes], options: Iterable[tuple[int, Any]] = (), **keywords: Any) -> State:
        """Create, add, complete, destroy."""
        state = self.create(*options, **keywords)
        for number, (kind, data) in enumerate(inputs):
            self.add(state, kind, data, f"input{number}")
        self.complete(state)
        self.destroy(state)
        return state

    def in_thread(self, action: Callable[[], object]) -> None:
        """Run something in another thread."""
        thread = threading.Thread(target=action)
        thread.start()
        thread.join()


def facts(image: bytes) -> dict[str, Any]:
    """What matters of a linked image, by any linker."""
    artifact = inspect(image)
    return {
        "kind": artifact.kind,
        "sound": not artifact.problems,
        "relocatable": artifact.relocatable,
        "arch": artifact.arch,
        "kernels": sorted(artifact.kernels),
        "undefined": sorted(artifact.undefined),
        "functions": sorted(artifact.text_sections),
    }


def run_case(library: ctypes.CDLL, case: Callable[[Recorder], None], seconds: int = 25) -> list[dict[str, Any]]:
    """Run one case in a forked child; a death is the last row."""
    reading, writing = os.pipe()
    child = os.fork()
    if child == 0:
        os.close(reading)
        signal.alarm(seconds)
        with os.fdopen(writing, "w", encoding="utf-8") as pipe:

            def emit(row: dict[str, Any]) -> None:
                print(json.dumps(row), file=pipe, flush=True)

            try:
                case(Recorder(library, emit))
            except Exception as error:  # noqa: BLE001 (whatever it is belongs into the recording)
                emit({"call": "(case)", "error": repr(error)})
        os._exit(0)
    os.close(writing)
    with os.fdopen(reading, encoding="utf-8") as pipe:
        rows = [json.loads(line) for line in pipe]
    status = os.waitpid(child, 0)[1]
    if os.WIFSIGNALED(status):
        rows.append({"call": "(process)", "signal": signal.Signals(os.WTERMSIG(status)).name})
    return rows
