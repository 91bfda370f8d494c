"""Object code: bytes to link, with a kind and a name."""

from __future__ import annotations

import os
from collections.abc import Mapping
from functools import cached_property
from pathlib import Path
from typing import Self

from ..artifacts import Artifact, Kind, inspect

__all__ = ["ObjectCode"]

Source = bytes | bytearray | memoryview | str | os.PathLike[str]


class ObjectCode:
    """Compiled code of one kind; make it with ``from_ptx``, ``from_cubin`` and so on, or with `Program.compile`.

    Every ``from_`` method takes bytes, or the path of a file (``str`` or ``os.PathLike``), and an optional name that
    logs and errors show; a file's default name is its path.
    """

    _code: bytes
    _code_type: Kind
    _name: str
    _symbol_mapping: dict[str, str]

    def __init__(self, *_: object, **__: object) -> None:
        makers = "from_ptx, from_ltoir, from_cubin, from_fatbin, from_object or from_library"
        msg = f"ObjectCode is not made directly; use ObjectCode.{makers}"
        raise TypeError(msg)

    @classmethod
    def _make(
        cls, code: Source, code_type: Kind, name: str = "", symbol_mapping: Mapping[str, str] | None = None
    ) -> Self:
        if isinstance(code, str) and "\n" in code:
            msg = f"ObjectCode.from_{code_type}: a str is the path of a file; encode() text to pass it as bytes"
            raise TypeError(msg)
        if isinstance(code, str | os.PathLike):
            path = Path(code)
            data = path.read_bytes()
            name = name or str(path)
        elif isinstance(code, bytes | bytearray | memoryview):
            data = bytes(code)
        else:
            msg = f"ObjectCode.from_{code_type} takes bytes or a path, got {type(code).__name__}"
            raise TypeError(msg)
        self = cls.__new__(cls)
        self._code, self._code_type, self._name = data, code_type, name
        self._symbol_mapping = dict(symbol_mapping or {})
        return self

    @classmethod
    def from_ptx(cls, code: Source, *, name: str = "", symbol_mapping: Mapping[str, str] | None = None) -> Self:
        """Return object code of PTX text."""
        return cls._make(code, "ptx", name, symbol_mapping)

    @classmethod
    def from_ltoir(cls, code: Source, *, name: str = "", symbol_mapping: Mapping[str, str] | None = None) -> Self:
        """Return object code of LTO-IR."""
        return cls._make(code, "ltoir", name, symbol_mapping)

    @classmethod
    def from_cubin(cls, code: Source, *, name: str = "", symbol_mapping: Mapping[str, str] | None = None) -> Self:
        """Return object code of a cubin."""
        return cls._make(code, "cubin", name, symbol_mapping)

    @classmethod
    def from_fatbin(cls, code: Source, *, name: str = "", symbol_mapping: Mapping[str, str] | None = None) -> Self:
        """Return object code of a fatbin."""
        return cls._make(code, "fatbin", name, symbol_mapping)

    @classmethod
    def from_object(cls, code: Source, *, name: str = "", symbol_mapping: Mapping[str, str] | None = None) -> Self:
        """Return object code of a host object with device code."""
        return cls._make(code, "object", name, symbol_mapping)

    @classmethod
    def from_library(cls, code: Source, *, name: str = "", symbol_mapping: Mapping[str, str] | None = None) -> Self:
        """Return object code of an archive of host objects with device code."""
        return cls._make(code, "library", name, symbol_mapping)

    @property
    def code(self) -> bytes:
        """The bytes; PTX from NVRTC and nvJitLink ends with NUL."""
        return self._code

    @property
    def code_type(self) -> Kind:
        """``"ptx"``, ``"ltoir"``, ``"cubin"``, ``"fatbin"``, ``"object"`` or ``"library"``."""
        return self._code_type

    @property
    def name(self) -> str:
        """The name in logs and errors; may be empty."""
        return self._name

    @property
    def symbol_mapping(self) -> dict[str, str]:
        """The lowered symbol of each name expression of the program."""
        return dict(self._symbol_mapping)

    @cached_property
    def artifact(self) -> Artifact:
        """The result of `pytest_cudalink.artifacts.inspect` for the bytes."""
        return inspect(self._code)

    def __repr__(self) -> str:
        return f"<ObjectCode {self._name or '(no name)'!r}: {self._code_type}, {len(self._code)} bytes>"
