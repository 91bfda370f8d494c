"""Object code: bytes to link, with a kind and a name, what a `Linker` asks of them once, and its checks of them."""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Self, cast

from ..artifacts import Artifact, Kind, inspect
from ..base.laziness import cached_property
from ..base.regular_files import DATA, read_bounded
from ..compat.link_rules import evidence
from ..targets.base import Backend, LinkInput
from ..versions import CudaVersion, Needs
from .errors import LinkError, VersionSkewError, skew_sentence

Source = bytes | bytearray | memoryview | str | os.PathLike[str]


class InputFacts:
    """What every link asks of an input, found out at the first link and kept.

    `kind`: the declared kind.
    `name`: the given name; may be empty.
    `payload`: the bytes as a library takes them: PTX ends with NUL.
    `linkable`: whether the image is sound, of the declared kind, and not linked already.
    `archs`: the architectures that the leaves name, without repetition.
    `needs`: the newest release that a leaf needs.
    `defined`: the strong definitions, and `defines_twice` whether the image has one of them twice.
    """

    __slots__ = ("archs", "defined", "defines_twice", "kind", "linkable", "name", "needs", "needs_lto", "payload")

    def __init__(self, code: ObjectCode) -> None:
        artifact = code.artifact
        self.kind, self.name = code.code_type, code.name
        self.payload = code.code
        # both linkers want PTX terminated (nvJitLink documentation; CUDA Driver API, cuLinkAddData)
        if self.kind == "ptx" and not self.payload.endswith(b"\0"):
            self.payload += b"\0"
        linked = artifact.kind == "cubin" and not artifact.relocatable
        self.linkable = not artifact.problems and artifact.kind == self.kind and not linked
        self.needs_lto = artifact.needs_lto
        leaves = tuple(artifact.leaves)
        self.archs = tuple(dict.fromkeys(leaf.arch for leaf in leaves if leaf.arch))
        self.needs: Needs | None = max((leaf.needs for leaf in leaves if leaf.needs is not None), default=None)
        self.defined = frozenset(artifact.defined)
        self.defines_twice = len(self.defined) != len(artifact.defined)


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
        raise TypeError(f"ObjectCode is not made directly; use ObjectCode.{makers}")

    @classmethod
    def _make(
        cls, code: Source, code_type: str, name: str = "", symbol_mapping: Mapping[str, str] | None = None
    ) -> Self:
        if isinstance(code, bytes | bytearray | memoryview):
            data = bytes(code)
        elif isinstance(code, str) and "\n" in code:
            msg = f"ObjectCode.from_{code_type}: a str is the path of a file; encode() text to pass it as bytes"
            raise TypeError(msg)
        elif isinstance(code, str | os.PathLike):
            path = Path(code)
            data = read_bounded(path, DATA)
            name = name or str(path)
        else:
            raise TypeError(f"ObjectCode.from_{code_type} takes bytes or a path, got {type(code).__name__}")
        self = cls.__new__(cls)
        self._code, self._code_type, self._name = data, cast("Kind", code_type), name
        self._symbol_mapping = dict(symbol_mapping) if symbol_mapping else {}
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

    @cached_property
    def facts(self) -> InputFacts:
        """What a `Linker` asks of the input."""
        return InputFacts(self)

    def as_link_input(self, number: int) -> LinkInput:
        """Return the input as hooks receive it; without a name it has that of its place in the link."""
        return self._link_input if self._name else LinkInput(self._code_type, f"input {number}", self._code)

    @cached_property
    def _link_input(self) -> LinkInput:
        return LinkInput(self._code_type, self._name, self._code)

    def __repr__(self) -> str:
        return f"<ObjectCode {self._name or '(no name)'!r}: {self._code_type}, {len(self._code)} bytes>"


# -- the checks that a `Linker` makes of its inputs before it calls a library, and the list to which others add theirs

#: The inputs of a link with their names in messages.
Inputs = Sequence[tuple[str, ObjectCode]]

#: Checks one leaf artifact of an input that nvJitLink is to link: (name of the input, artifact, release of nvJitLink)
#: to the error that speaks against the link, or None.
InputCheck = Callable[[str, Artifact, CudaVersion], Exception | None]

#: Checks that other parts of the process add and remove, such as `pytest_cudalink.guardrails`.
added_checks: list[InputCheck] = []


def refuse_images(inputs: Inputs) -> None:
    """Raise ValueError for an input that is damaged, linked already, or of another kind than declared."""
    for name, code in inputs:
        artifact = code.artifact
        if artifact.problems:
            raise ValueError(f"Linker: input {name!r} ({code.code_type}) cannot be linked: {artifact.problems[0]}")
        if artifact.kind != code.code_type:
            msg = f"Linker: input {name!r} was given as {code.code_type}, but its bytes are {artifact.describe()}"
            raise ValueError(msg)
        if artifact.kind == "cubin" and not artifact.relocatable:
            # nvJitLink makes an image without kernels of it and reports no error; the driver refuses it or dies
            do = "load it as it is, or compile it with relocatable_device_code=True"
            raise ValueError(f"Linker: input {name!r} ({artifact.describe()}) is linked already: {do}")


def newer_leaves(artifact: Artifact, version: CudaVersion) -> list[tuple[Artifact, Needs]]:
    """Return the leaves of an artifact that a linker of some release is too old for, with what they need."""
    return [(leaf, leaf.needs) for leaf in artifact.leaves if leaf.needs is not None and not leaf.needs.met_by(version)]


def refuse_newer(inputs: Inputs, backend: Backend, version: CudaVersion) -> None:
    """Raise VersionSkewError for an input that was made by a newer CUDA than the linker understands."""
    for name, code in inputs:
        for leaf, needs in newer_leaves(code.artifact, version):
            text = f"{_described(backend, version)} cannot link this input"
            hint = f"{skew_sentence(leaf, needs, version, backend)}{_measured(leaf, needs, version, backend)}"
            raise VersionSkewError(text, backend=backend, input_name=name, artifact=leaf, hint=hint, version=version)


def _measured(leaf: Artifact, needs: Needs, version: CudaVersion, backend: Backend) -> str:
    """Return the line with what was measured of the releases; empty if the release that made the input is not known."""
    if needs.newer_than and leaf.producer is None:
        return ""
    return f"\n  {evidence(backend, leaf.kind, leaf.producer or needs.version, version)}"


def refuse_by_added_checks(inputs: Inputs, nvjitlink: CudaVersion) -> None:
    """Raise VersionSkewError for an input that one of `added_checks` speaks against."""
    checked = ((check, name, leaf) for check in added_checks for name, code in inputs for leaf in code.artifact.leaves)
    for check, name, leaf in checked:
        error = check(name, leaf, nvjitlink)
        if error is not None:
            text = f"{_described('nvjitlink', nvjitlink)} must not link this input"
            hint = str(error).replace("\n", "\n  ")
            raise VersionSkewError(text, backend="nvjitlink", input_name=name, artifact=leaf, hint=hint) from error


def refuse_duplicates(inputs: Inputs, backend: Backend) -> None:
    """Raise LinkError for a symbol that two inputs define: nvJitLink only prints such a definition to stderr."""
    first: dict[str, str] = {}
    for name, code in inputs:
        for symbol in code.artifact.defined:
            if symbol in first:
                msg = f"multiple definition of {symbol!r} in {name!r}, first defined in {first[symbol]!r}"
                raise LinkError(msg, backend=backend, input_name=name, artifact=code.artifact)
            first[symbol] = name


def _described(backend: Backend, version: CudaVersion) -> str:
    return f"{'nvJitLink' if backend == 'nvjitlink' else 'the driver of CUDA'} {version}"
