"""Change the SONAME of a shared library, in a copy of its bytes.

The emulated driver opens its own libnvJitLink. If that had the usual SONAME, an application's
``dlopen("libnvJitLink.so.13")`` would return it (the dynamic loader takes any loaded library of that SONAME) instead of
the application's library, which may have another version and has other state.
"""

from __future__ import annotations

import struct

__all__ = ["SonameError", "renamed", "soname"]

# <elf.h>
_PT_LOAD, _PT_DYNAMIC = 1, 2
_DT_STRTAB, _DT_STRSZ, _DT_SONAME, _DT_VERDEF, _DT_VERDEFNUM = 5, 10, 14, 0x6FFFFFFC, 0x6FFFFFFD


class SonameError(ValueError):
    """The file is not a 64-bit little-endian ELF library with a SONAME."""


class _Library:
    """The numbers of an ELF file that locate its SONAME."""

    def __init__(self, data: bytes | bytearray) -> None:
        if data[:6] != b"\x7fELF\x02\x01":
            msg = "not a 64-bit little-endian ELF file"
            raise SonameError(msg)
        table: int = struct.unpack_from("<Q", data, 32)[0]
        size, count = struct.unpack_from("<HH", data, 54)
        headers: list[tuple[int, ...]] = [
            struct.unpack_from("<IIQQQQ", data, table + size * number) for number in range(count)
        ]
        self._loads = [(address, offset, length) for kind, _, offset, address, _, length in headers if kind == _PT_LOAD]
        self.dynamic: dict[int, int] = {}
        for kind, _, offset, _, _, length in headers:
            if kind == _PT_DYNAMIC:
                for at in range(offset, offset + length, 16):
                    tag, value = struct.unpack_from("<qQ", data, at)
                    self.dynamic.setdefault(tag, value)
        if not {_DT_STRTAB, _DT_STRSZ, _DT_SONAME} <= set(self.dynamic):
            msg = "a library without a SONAME"
            raise SonameError(msg)

    def offset(self, address: int) -> int:
        """Offset in the file of an address of the loaded image."""
        for start, offset, length in self._loads:
            if start <= address < start + length:
                return address - start + offset
        msg = f"address {address:#x} is in no segment"
        raise SonameError(msg)

    @property
    def name_at(self) -> int:
        """Offset of the SONAME in the file."""
        return self.offset(self.dynamic[_DT_STRTAB]) + self.dynamic[_DT_SONAME]


def soname(data: bytes | bytearray) -> str:
    """The SONAME of a library.

    Raises
    ------
    SonameError
        If the bytes are not such a library.
    """
    try:
        at = _Library(data).name_at
        return data[at : data.index(b"\0", at)].decode()
    except (struct.error, ValueError) as error:
        msg = f"no SONAME can be read: {error}"
        raise SonameError(msg) from error


def renamed(data: bytes, name: str) -> bytearray:
    """A copy of a library under a new SONAME of the same length.

    Version definitions share the string of the name, so they change with it, and so do the hashes that stand for them
    (System V ABI, "Symbol Table", ``elf_hash``).

    Raises
    ------
    SonameError
        If the bytes are not such a library, or if the new name has another length.
    """
    old, new = soname(data).encode(), name.encode()
    if len(old) != len(new):
        msg = f"the new SONAME {name!r} has {len(new)} characters; expected {len(old)}, as in {old.decode()!r}"
        raise SonameError(msg)
    result = bytearray(data)
    library = _Library(result)
    result[library.name_at : library.name_at + len(new)] = new
    if _DT_VERDEF in library.dynamic:
        at = library.offset(library.dynamic[_DT_VERDEF])
        for _ in range(library.dynamic[_DT_VERDEFNUM]):
            *_, value, auxiliary, following = struct.unpack_from("<HHHHIII", result, at)
            (text,) = struct.unpack_from("<I", result, at + auxiliary)
            if value == _hash(old) and text == library.dynamic[_DT_SONAME]:
                struct.pack_into("<I", result, at + 8, _hash(new))
            at += following
    return result


def _hash(name: bytes) -> int:
    value = 0
    for byte in name:
        value = (value << 4) + byte
        value = (value ^ (value >> 24 & 0xF0)) & 0x0FFFFFFF
    return value
