"""The error and the bounds-checked access that the readers of this package share."""

from __future__ import annotations

import struct

__all__ = ["Damaged", "Reader"]


class Damaged(ValueError):  # noqa: N818 (a finding about bytes, caught by inspect)
    """An image is truncated or inconsistent; the text says where."""


class Reader:
    """Bounds-checked little-endian access to one image."""

    __slots__ = ("data", "size")

    def __init__(self, data: memoryview) -> None:
        self.data = data
        self.size = len(data)

    def span(self, offset: int, size: int, what: str) -> memoryview:
        """The bytes ``[offset, offset + size)``, or `Damaged` naming `what` lies outside."""
        if offset < 0 or size < 0 or offset + size > self.size:
            msg = f"{what} ends at byte {offset + size}, the image has {self.size}"
            raise Damaged(msg)
        return self.data[offset : offset + size]

    def unpack(self, layout: struct.Struct, offset: int, what: str) -> tuple[int, ...]:
        """Unpack one `struct.Struct` at `offset`."""
        return layout.unpack(self.span(offset, layout.size, what))
