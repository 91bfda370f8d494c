"""The guard rails' check of the bundled linker's inputs, as pipelines from NVRTC to nvJitLink."""

from __future__ import annotations

from typing import TYPE_CHECKING

from .. import probes
from ..artifacts import Artifact
from . import attribution
from .items import CompatibilityCheckError, Item
from .pipelines import ARTIFACT_KINDS

if TYPE_CHECKING:
    from ..versions import CudaVersion
    from .guard import CompatibilityGuardRails


def check_input(
    guard: CompatibilityGuardRails, name: str, artifact: Artifact, nvjitlink: CudaVersion
) -> CompatibilityCheckError | None:
    """Check one input of a link, and declare the pipeline that made it.

    The artifact's header says which release made it. The pipeline is declared only if the process's NVRTC is of that
    release: an artifact from elsewhere says nothing about this process's NVRTC.

    `name`: name of the input.
    `artifact`: a leaf, not a container.
    `nvjitlink`: release of the nvJitLink that is to link.
    Returns the error if nvJitLink's release may not read the artifact, or if NVRTC and nvJitLink in this process do not
    fit for artifacts of this kind.
    """
    made = artifact.producer
    if made is None or artifact.kind not in ARTIFACT_KINDS:
        return None
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
    try:
        guard.check_artifact(artifact.kind, producer, consumer)
        here = {item.version for item in guard.present() if item.kind == "dynamic-libs" and item.name == "nvrtc"}
        if here == {made}:
            guard.declare_pipeline("nvrtc", "nvJitLink", artifact.kind)
    except CompatibilityCheckError as error:
        return error
    return None
