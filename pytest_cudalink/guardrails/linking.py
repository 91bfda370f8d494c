"""The bundled linker's pipelines: from NVRTC to nvJitLink, the kind by the artifact."""

from __future__ import annotations

from typing import TYPE_CHECKING

from .. import probes
from ..artifacts import Artifact
from . import attribution
from .items import Item
from .pipelines import ARTIFACT_KINDS

if TYPE_CHECKING:
    from ..versions import CudaVersion
    from .guard import CompatibilityGuardRails

__all__ = ["check_input"]


def check_input(guard: CompatibilityGuardRails, name: str, artifact: Artifact, nvjitlink: CudaVersion) -> None:
    """Judge one input of a link, and declare the pipeline that it came by.

    The artifact's own header says who made it. The pipeline is declared when the process's NVRTC is of that release: an
    artifact that was brought along says nothing about the NVRTC that is here.

    Parameters
    ----------
    guard : CompatibilityGuardRails
    name : str
        Of the input.
    artifact : Artifact
        A leaf: no container.
    nvjitlink : CudaVersion
        Release of the nvJitLink that shall link.

    Raises
    ------
    CompatibilityCheckError
        If nvJitLink's release may not read it, or NVRTC and nvJitLink in this process do not fit for this kind.
    """
    made = artifact.producer
    if made is None or artifact.kind not in ARTIFACT_KINDS:
        return
    faked = probes.fakes().fakes_nvjitlink
    path = "?" if faked else probes.nvjitlink().path or "?"
    wheel = attribution.owner(path)
    consumer = Item(
        "dynamic-libs",
        "nvJitLink",
        path,
        "pytest_cudalink.probes",
        "ctk",
        nvjitlink,
        "faked" if faked else "nvJitLinkVersion",
        wheel.name if wheel else "",
    )
    producer = Item("artifacts", name, "memory", "the linker's inputs", "ctk", made, "its own header")
    guard.check_artifact(artifact.kind, producer, consumer)
    here = {item.version for item in guard.present() if item.kind == "dynamic-libs" and item.name == "nvrtc"}
    if here == {made}:
        guard.declare_pipeline("nvrtc", "nvJitLink", artifact.kind)
