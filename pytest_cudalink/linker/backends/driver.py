"""The driver backend: cuLink* on memory that this module owns.

``cuLinkCreate`` keeps the address of the option values and of both log buffers until ``cuLinkDestroy`` (CUDA Driver
API, cuLinkCreate; measured: every add and complete writes to the option values). Three common faults follow from that:
log buffers dropped after complete, option values on the stack, buffers kept until garbage collection although the
linker is closed. Here one object holds every block, and `DriverLinkState._release` is the one place that releases them.
"""

import ctypes
import mmap
import os
import struct
from collections.abc import Callable
from functools import cache
from typing import Any, Protocol, cast

from ...probes import libcuda
from ..errors import LinkError
from ..options import DriverOption
from .state import LinkState

#: Bytes of each log buffer.
LOG_SIZE = 16 * 1024

#: Bytes of a `MappedBlock` before the logs, for the arrays of 64 options.
_ARRAYS = 64 * 12
_FOUR_VALUES = ctypes.c_uint64 * 4

# CUjit_option and CUjitInputType of cuda.h
_INFO_LOG, _INFO_LOG_SIZE, _ERROR_LOG, _ERROR_LOG_SIZE = 3, 4, 5, 6
_INPUT_TYPES = {"cubin": 0, "ptx": 1, "fatbin": 2, "object": 3, "library": 4}


class OptionBlock(Protocol):
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


#: Pages that the last link of a process left as they were, for its next one: to map and unmap them costs more than all
#: other steps of a link. By process: a forked child shares them with its parent.
_spare: dict[int, MappedBlock] = {}


class _Calls:
    """The driver's functions for links, with the types of their arguments: ctypes then converts plain numbers.

    Each is a separate function object, so that the types do not reach other users of the library.
    """

    def __init__(self, library: ctypes.CDLL) -> None:
        def function(name: str, *types: Any) -> Callable[..., int]:
            return cast("Callable[..., int]", ctypes.CFUNCTYPE(ctypes.c_int, *types)((name, library)))

        pointer, number, size = ctypes.c_void_p, ctypes.c_uint, ctypes.c_size_t
        text, integer = ctypes.c_char_p, ctypes.c_int
        self.initialize = function("cuInit", number)
        self.get_context = function("cuCtxGetCurrent", pointer)
        self.push_context = function("cuCtxPushCurrent_v2", pointer)
        self.pop_context = function("cuCtxPopCurrent_v2", pointer)
        self.get_context_device = function("cuCtxGetDevice", pointer)
        self.get_device = function("cuDeviceGet", pointer, integer)
        self.get_primary_state = function("cuDevicePrimaryCtxGetState", integer, pointer, pointer)
        self.retain_primary = function("cuDevicePrimaryCtxRetain", pointer, integer)
        self.release_primary = function("cuDevicePrimaryCtxRelease_v2", integer)
        self.create = function("cuLinkCreate_v2", number, pointer, pointer, pointer)
        self.add = function("cuLinkAddData_v2", pointer, integer, text, size, text, number, pointer, pointer)
        self.complete = function("cuLinkComplete", pointer, pointer, pointer)
        self.destroy = function("cuLinkDestroy", pointer)


#: The functions of a driver library, which are made once.
_calls_of = cache(_Calls)


def _text(address: int, written: int) -> str:
    """Return the text of a log buffer; the option value of its size has 32 bits."""
    size = min(written & 0xFFFFFFFF, LOG_SIZE)
    text = ctypes.string_at(address, size).rstrip(b"\0").decode("utf-8", "replace")
    return f"{text}\n[log truncated: the buffer of {LOG_SIZE} bytes is full]" if size >= LOG_SIZE else text


@cache
def _packer(count: int) -> Callable[..., bytes]:
    """Return what packs the values of some options, and then their keys."""
    return struct.Struct(f"{count}Q{count}i").pack


def _check(code: int, function: str) -> None:
    if code:
        raise libcuda.DriverError(function, code)


class _Context:
    """The context that the link runs in: the current one, else the primary context of device 0 until `release`.

    A context that was destroyed, and is still current, counts as none. A primary context that nothing else keeps is
    retained once more, and never released: to make it takes 170 ms on an H100, and a link in it 0.5 ms. Only the driver
    knows of that, so that a reset of the context, another thread or a forked child needs no care.
    """

    def __init__(self, calls: _Calls) -> None:
        self._calls = calls
        self._found, self._device = ctypes.c_void_p(), ctypes.c_int()
        self._where = ctypes.byref(self._found)
        #: The primary context while it is retained: the driver writes it as it retains it.
        self._primary = ctypes.c_void_p()
        self.handle: int | None = None

    def find(self) -> None:
        """Find the context, and retain it if it is the primary one."""
        calls, device = self._calls, ctypes.byref(self._device)
        _check(calls.initialize(0), "cuInit")
        _check(calls.get_context(self._where), "cuCtxGetCurrent")
        self.handle = self._found.value
        if not self.handle or calls.get_context_device(device):
            _check(calls.get_device(device, 0), "cuDeviceGet")
            number, active = self._device.value, ctypes.c_int()
            # its flags go where the link's context was looked for
            _check(calls.get_primary_state(number, self._where, ctypes.byref(active)), "cuDevicePrimaryCtxGetState")
            _check(calls.retain_primary(ctypes.byref(self._primary), number), "cuDevicePrimaryCtxRetain")
            self.handle = self._primary.value
            if not active.value:
                _check(calls.retain_primary(self._where, number), "cuDevicePrimaryCtxRetain")

    def call(self, function: Callable[..., int], *arguments: object) -> int:
        """Return the result of a function that is called in the context; what was current is so again afterwards."""
        calls = self._calls
        _check(calls.get_context(self._where), "cuCtxGetCurrent")
        if self._found.value == self.handle:
            return function(*arguments)
        try:
            _check(calls.push_context(self.handle), "cuCtxPushCurrent_v2")
            code = function(*arguments)
            _check(calls.pop_context(self._where), "cuCtxPopCurrent_v2")
        except BaseException:
            # an exception may have come as one of the calls returned: the driver says whether the context is pushed
            if not calls.get_context(self._where) and self._found.value == self.handle:
                calls.pop_context(self._where)
            raise
        return code

    def release(self) -> None:
        """Release the primary context if it is retained; may be called again."""
        if self._primary.value:
            release, device = self._calls.release_primary, self._device.value
            self._primary.value = None
            _check(release(device), "cuDevicePrimaryCtxRelease_v2")


class DriverLinkState(LinkState):
    """One CUlinkState and all the memory that the driver has addresses of.

    `allocate`: returns an `OptionBlock` of a given size in bytes. By default one `MappedBlock` holds both logs and both
    arrays.
    Raises LinkError if the driver refuses the options.
    Raises DriverNotFoundError if no driver is installed.
    """

    name = library = "driver"

    def __init__(self, options: list[DriverOption], allocate: Callable[[int], OptionBlock] | None = None) -> None:
        super().__init__()
        self._allocate = allocate
        self._blocks: list[OptionBlock] = []
        self._pages: MappedBlock | None = None
        self._info: OptionBlock
        self._error: OptionBlock
        self._destroyed = False
        self._context: _Context | None = None
        try:
            self._create(options)
        except BaseException:
            self.close()
            raise

    def _create(self, options: list[DriverOption]) -> None:
        self._calls = calls = _calls_of(libcuda.library())
        self._context = _Context(calls)
        try:
            self._context.find()
        except libcuda.DriverError as error:
            raise self._failure(error) from error
        self._place_logs()
        keys = [_INFO_LOG, _INFO_LOG_SIZE, _ERROR_LOG, _ERROR_LOG_SIZE]
        values = [self._info_at, LOG_SIZE, self._error_at, LOG_SIZE]
        for option in options:
            if isinstance(option.value, tuple):
                # the next option after an array of names is its length
                keys += [option.key, option.key + 1]
                values += [self._strings(option.value), len(option.value)]
            else:
                keys.append(option.key)
                values.append(option.value)
        count = len(keys)
        self._place_arrays(count)
        arrays = _packer(count)(*values, *keys)
        if self._keys_at == self._values_at + 8 * count:
            ctypes.memmove(self._values_at, arrays, 12 * count)
        else:
            ctypes.memmove(self._values_at, arrays, 8 * count)
            ctypes.memmove(self._keys_at, arrays[8 * count :], 4 * count)
        try:
            self._call("cuLinkCreate_v2", calls.create, count, self._keys_at, self._values_at, ctypes.byref(self._cell))
        except LinkError as error:
            hint = "options: " + ", ".join(f"{option.name}={option.value}" for option in options)
            raise error.with_context(hint=hint) from error.__cause__

    def _place_logs(self) -> None:
        if self._allocate is None:
            # the arrays and the beginning of a log share a page: the first use of a page costs more than most calls
            pages = _spare.pop(self.process, None) or MappedBlock(_ARRAYS + 2 * LOG_SIZE)
            self._pages = self._info = self._error = pages
            self._blocks.append(pages)
            self._info_at, self._error_at = pages.address + _ARRAYS, pages.address + _ARRAYS + LOG_SIZE
        else:
            self._info, self._error = self._block(LOG_SIZE), self._block(LOG_SIZE)
            self._info_at, self._error_at = self._info.address, self._error.address

    def _place_arrays(self, count: int) -> None:
        if self._allocate is None and 12 * count <= _ARRAYS:
            self._values_at = self._info_at - _ARRAYS
            self._keys_at = self._values_at + 8 * count
        else:
            self._keys_at, self._values_at = self._block(4 * count).address, self._block(8 * count).address

    def _call(self, name: str, function: Callable[..., int], *arguments: object) -> None:
        """Call a function in the context of the link.

        Raises LinkError if the driver refuses it.
        """
        assert self._context is not None
        try:
            _check(self._context.call(function, *arguments), name)
        except libcuda.DriverError as error:
            raise self._failure(error) from error

    def _add(self, kind: str, code: bytes, name: bytes) -> None:
        add, number = self._calls.add, _INPUT_TYPES[kind]
        self._call("cuLinkAddData_v2", add, self.handle, number, code, len(code), name, 0, None, None)

    def _complete(self, _target: str) -> bytes:
        """Link, and copy the cubin while the state that owns it is alive."""
        image, size = ctypes.c_void_p(), ctypes.c_size_t()
        self._call("cuLinkComplete", self._calls.complete, self.handle, ctypes.byref(image), ctypes.byref(size))
        code = ctypes.string_at(image.value or 0, size.value)
        self.read_logs()
        self._refuse_logged_errors("cuLinkComplete")  # some drivers report success for an undefined symbol
        return code

    def _release(self) -> None:
        """Destroy the state, and only then release the memory that it points to."""
        self._destroy()
        pages, self._pages = self._pages, None
        clean = self._destroyed and not self.info_log and not self.error_log
        if pages is not None and clean and os.getpid() == self.process:
            self._blocks.remove(pages)
            ctypes.memset(pages.address, 0, _ARRAYS)
            if _spare.setdefault(self.process, pages) is not pages:
                pages.release()
        while self._blocks:
            self._blocks.pop().release()
        if self._context and os.getpid() == self.process:
            self._context.release()

    def _destroy(self) -> None:
        # CUDA does not work in a forked child: the state belongs to the parent, which destroys it
        if self.handle and os.getpid() == self.process:
            assert self._context is not None
            try:
                _check(self._context.call(self._destroy_state), "cuLinkDestroy")
            except libcuda.DriverError:
                self._cell.value = None
                raise
            self._destroyed = True
        self._cell.value = None

    def _destroy_state(self) -> int:
        """Destroy the state, once: no signal's exception comes between the last two lines."""
        destroy, state = self._calls.destroy, self._cell.value
        self._cell.value = None
        return destroy(state)

    def _block(self, size: int) -> OptionBlock:
        block = (self._allocate or MappedBlock)(size)
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
        # the driver wrote the sizes back into the option values
        _, info_size, _, error_size = _FOUR_VALUES.from_address(self._values_at)
        self.info_log = _text(self._info_at, info_size) if info_size else ""
        self.error_log = _text(self._error_at, error_size) if error_size else ""

    def _failure(self, error: libcuda.DriverError) -> LinkError:
        self.read_logs()
        return self._link_error(f"{self.library}: {error}", error.function, error.code, error.name)
