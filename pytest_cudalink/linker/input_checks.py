"""The checks that a `Linker` makes of its inputs before it calls a library, and the list to which others add theirs."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from ..artifacts import Artifact
from ..compat.link_rules import evidence
from ..targets.base import Backend
from ..versions import CudaVersion, Needs
from .errors import LinkError, VersionSkewError, skew_sentence
from .objectcode import ObjectCode

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
        found = code.artifact
        if found.problems:
            msg = f"Linker: input {name!r} ({code.code_type}) cannot be linked: {found.problems[0]}"
            raise ValueError(msg)
        if found.kind != code.code_type:
            msg = f"Linker: input {name!r} was given as {code.code_type}, but its bytes are {found.describe()}"
            raise ValueError(msg)
        if found.kind == "cubin" and not found.relocatable:
            # nvJitLink makes an image without kernels of it and reports no error; the driver refuses it or dies
            msg = (
                f"Linker: input {name!r} ({found.describe()}) is linked already: load it as it is, "
                "or compile it with relocatable_device_code=True"
            )
            raise ValueError(msg)


def newer_leaves(artifact: Artifact, version: CudaVersion) -> list[tuple[Artifact, Needs]]:
    """Return the leaves of an artifact that a linker of some release is too old for, with what they need."""
    return [(leaf, leaf.needs) for leaf in artifact.leaves if leaf.needs is not None and not leaf.needs.met_by(version)]


def refuse_newer(inputs: Inputs, backend: Backend, version: CudaVersion) -> None:
    """Raise VersionSkewError for an input that was made by a newer CUDA than the linker understands."""
    for name, code in inputs:
        for leaf, needs in newer_leaves(code.artifact, version):
            raise VersionSkewError(
                f"{_described(backend, version)} cannot link this input",
                backend=backend,
                input_name=name,
                artifact=leaf,
                hint=f"{skew_sentence(leaf, needs, version, backend)}{_measured(leaf, needs, version, backend)}",
                version=version,
            )


def _measured(leaf: Artifact, needs: Needs, version: CudaVersion, backend: Backend) -> str:
    """Return the line with what was measured of the releases; empty if the release that made the input is not known."""
    if needs.newer_than and leaf.producer is None:
        return ""
    return f"\n  {evidence(backend, leaf.kind, leaf.producer or needs.version, version)}"


def refuse_by_added_checks(inputs: Inputs, nvjitlink: CudaVersion) -> None:
    """Raise VersionSkewError for an input that one of `added_checks` speaks against."""
    for check in added_checks:
        for name, code in inputs:
            for leaf in code.artifact.leaves:
                error = check(name, leaf, nvjitlink)
                if error is not None:
                    raise VersionSkewError(
                        f"{_described('nvjitlink', nvjitlink)} must not link this input",
                        backend="nvjitlink",
                        input_name=name,
                        artifact=leaf,
                        hint=str(error).replace("\n", "\n  "),
                    ) from error


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
