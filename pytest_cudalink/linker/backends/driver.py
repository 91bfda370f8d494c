"""The driver backend: cuLink* on memory that this module owns.

``cuLinkCreate`` keeps the address of the option values and of both log buffers until ``cuLinkDestroy`` (CUDA Driver
API, cuLinkCreate; measured: every add and complete writes to the option values). Three common faults follow from that:
log buffers dropped after complete, option values on the stack, buffers kept until garbage collection although the
linker is closed. Here one object holds every block, and `DriverLinkState._release` is the one place that releases them.
"""

from __future__ import annotations

import ctypes
import mmap
import os
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Protocol

from ...probes import libcuda
from ..errors import LinkError
from ..options import DriverOption
from .state import LinkState

__all__ = ["LOG_SIZE", "Block", "DriverLinkState", "MappedBlock"]

#: Bytes of each log buffer.
LOG_SIZE = 16 * 1024

# CUjit_option and CUjitInputType of cuda.h
_INFO_LOG, _INFO_LOG_SIZE, _ERROR_LOG, _ERROR_LOG_SIZE = 3, 4, 5, 6
_INPUT_TYPES = {"cubin": 0, "ptx": 1, "fatbin": 2, "object": 3, "library": 4}


class Block(Protocol):
    """Memory at a fixed address until `release`."""

    address: int

    def release(self) -> None: ...


class MappedBlock:
    """Separate pages: zeroed, and unmapped at once when released."""

    def __init__(self, size: int) -> None:
        self._pages = mmap.mmap(-1, size)
        anchor = ctypes.c_char.from_buffer(self._pages)
        self.address = ctypes.addressof(anchor)
        del anchor  # an exported buffer would keep the pages from being unmapped

    def release(self) -> None:
        self._pages.close()


class _Context:
    """The context that the link runs in: the current one, else the primary context of device 0 until `release`."""

    def __init__(self) -> None:
        self._device: ctypes.c_int | None = None
        self.handle = ctypes.c_void_p()
        libcuda.call("cuInit", 0)
        libcuda.call("cuCtxGetCurrent", ctypes.byref(self.handle))
        if not self.handle.value:
            device = ctypes.c_int()
            libcuda.call("cuDeviceGet", ctypes.byref(device), 0)
            libcuda.call("cuDevicePrimaryCtxRetain", ctypes.byref(self.handle), device)
            self._device = device

    @contextmanager
    def current(self) -> Iterator[None]:
        libcuda.call("cuCtxPushCurrent_v2", self.handle)
        try:
            yield
        finally:
            libcuda.call("cuCtxPopCurrent_v2", ctypes.byref(ctypes.c_void_p()))

    def release(self) -> None:
        if self._device is not None:
            device, self._device = self._device, None
            libcuda.call("cuDevicePrimaryCtxRelease_v2", device)


class DriverLinkState(LinkState):
    """One CUlinkState and all the memory that the driver has addresses of.

    Parameters
    ----------
    options : list of DriverOption
    allocate : callable
        Returns a `Block` of a given size in bytes.

    Raises
    ------
    LinkError
        If the driver refuses the options.
    DriverNotFoundError
        If no driver is installed.
    """

    name = "driver"

    def __init__(self, options: list[DriverOption], allocate: Callable[[int], Block] = MappedBlock) -> None:
        super().__init__()
        self._allocate = allocate
        self._blocks: list[Block] = []
        self._context: _Context | None = None
        self._state = ctypes.c_void_p()
        try:
            self._create(options)
        except BaseException:
            self.close()
            raise

    @property
    def handle(self) -> int:
        return self._state.value or 0

    def _create(self, options: list[DriverOption]) -> None:
        self._check(self._open_context)
        self._info, self._error = self._block(LOG_SIZE), self._block(LOG_SIZE)
        entries = [
            (_INFO_LOG, self._info.address),
            (_INFO_LOG_SIZE, LOG_SIZE),
            (_ERROR_LOG, self._error.address),
            (_ERROR_LOG_SIZE, LOG_SIZE),
        ]
        for option in options:
            if isinstance(option.value, tuple):
                # the next option after an array of names is its length
                entries += [(option.key, self._strings(option.value)), (option.key + 1, len(option.value))]
            else:
                entries.append((option.key, option.value))
        count = len(entries)
        keys, values = self._block(4 * count), self._block(8 * count)
        self._values_address = values.address
        ctypes.memmove(keys.address, (ctypes.c_int * count)(*(key for key, _ in entries)), 4 * count)
        ctypes.memmove(values.address, (ctypes.c_uint64 * count)(*(value for _, value in entries)), 8 * count)
        self._check(
            lambda: libcuda.call(
                "cuLinkCreate_v2",
                ctypes.c_uint(count),
                ctypes.c_void_p(keys.address),
                ctypes.c_void_p(values.address),
                ctypes.byref(self._state),
            ),
            hint="options: " + ", ".join(f"{option.name}={option.value}" for option in options),
        )

    def _open_context(self) -> None:
        self._context = _Context()

    def _add(self, kind: str, code: bytes, name: bytes) -> None:
        self._check(
            lambda: libcuda.call(
                "cuLinkAddData_v2",
                self._state,
                ctypes.c_int(_INPUT_TYPES[kind]),
                ctypes.c_char_p(code),
                ctypes.c_size_t(len(code)),
                ctypes.c_char_p(name),
                ctypes.c_uint(0),
                None,
                None,
            ),
        )

    def _complete(self, _target: str) -> bytes:
        """Link, and copy the cubin while the state that owns it is alive."""
        image, size = ctypes.c_void_p(), ctypes.c_size_t()
        self._check(
            lambda: libcuda.call("cuLinkComplete", self._state, ctypes.byref(image), ctypes.byref(size)),
        )
        code = ctypes.string_at(image.value or 0, size.value)
        self.read_logs()
        if "error   :" in self.error_log:  # some drivers report success for an undefined symbol
            msg = "driver: cuLinkComplete reported success, but its log has errors"
            raise LinkError(
                msg, backend=self.name, call="cuLinkComplete", code=0, error_log=self.error_log, info_log=self.info_log
            )
        return code

    def _release(self) -> None:
        """Destroy the state, and only then release the memory that it points to."""
        self._destroy()
        while self._blocks:
            self._blocks.pop().release()
        self._release_context()

    def _destroy(self) -> None:
        state, self._state = self._state, ctypes.c_void_p()
        # CUDA does not work in a forked child: the state belongs to the parent, which destroys it
        if state.value and self._context and os.getpid() == self.process:
            with self._context.current():
                libcuda.call("cuLinkDestroy", state)

    def _release_context(self) -> None:
        context, self._context = self._context, None
        if context and os.getpid() == self.process:
            context.release()

    def _block(self, size: int) -> Block:
        block = self._allocate(size)
        self._blocks.append(block)
        return block

    def _strings(self, names: tuple[str, ...]) -> int:
        """Return the address of an array of C strings that lives as long as the state."""
        texts = [name.encode() + b"\0" for name in names]
        block = self._block(8 * len(texts) + sum(map(len, texts)))
        at = block.address + 8 * len(texts)
        for index, text in enumerate(texts):
            ctypes.c_uint64.from_address(block.address + 8 * index).value = at
            ctypes.memmove(at, text, len(text))
            at += len(text)
        return block.address

    def _read_logs(self) -> None:
        self.info_log, self.error_log = self._log(self._info, 1), self._log(self._error, 3)

    def _log(self, block: Block, slot: int) -> str:
        """Return the text of one buffer; the driver wrote its size back into the option value."""
        size = min(ctypes.c_uint.from_address(self._values_address + 8 * slot).value, LOG_SIZE)
        text = ctypes.string_at(block.address, size).rstrip(b"\0").decode("utf-8", "replace")
        return f"{text}\n[log truncated: the buffer of {LOG_SIZE} bytes is full]" if size >= LOG_SIZE else text

    def _check(self, action: Callable[[], None], hint: str = "") -> None:
        try:
            if self._context is None:
                action()
            else:
                with self._context.current():
                    action()
        except libcuda.DriverError as error:
            self.read_logs()
            raise LinkError(
                f"driver: {error}",
                backend=self.name,
                call=error.function,
                code=error.code,
                code_name=error.name,
                error_log=self.error_log,
                info_log=self.info_log,
                hint=hint,
            ) from error
