"""The sample on this machine: ``python -m campaigns.hardware.samples dispatch`` or ``numbers``."""

import sys
from collections.abc import Iterator

from campaigns.hardware.result import Result
from pytest_cudalink import probes
from pytest_cudalink.linker import ObjectCode, sample
from pytest_cudalink.probes.libcuda import is_emulated
from pytest_cudalink.targets.base import Backend

#: Kinds of input and backends that can link them; None lets the table choose.
_BACKENDS: tuple[Backend | None, ...] = (None, "driver", "nvjitlink")
_WAYS = [(mode, b) for mode in ("ptx", "cubin", "ltoir") for b in _BACKENDS if (mode, b) != ("ltoir", "driver")]


def _links(arch: str) -> Iterator[tuple[str, str, ObjectCode, str]]:
    """Link the sample in each way; gives the input, with what is asked, the image, and the reason."""
    for mode, backend in _WAYS:
        yield mode, f"{mode}, {backend} forced" if backend else mode, *sample.link_sample(mode, arch, backend)


def dispatch() -> Result:
    """Return the versions that the probes find, and the decision for each kind of input; each way must link."""
    result = Result()
    table = result.table("What the probes find", "what", "value")
    arch = probes.device_arch()
    result.check("the device has no architecture; expected one such as sm_90", holds=arch is not None)
    table.row("driver", f"CUDA {probes.driver_version()}")
    table.row("device", arch)
    table.row("nvJitLink", probes.nvjitlink_version())
    chosen = result.table("Decisions", "input", "backend", "image", "reason")
    for mode, asked, image, why in _links(arch or "sm_90"):
        chosen.row(asked, why.partition(" ")[0], f"{len(image.code)} bytes", why)
        proved = sample.prove(mode, image)
        result.check(f"{asked}: the image is wrong: {proved.text}", holds=proved.ok)
    return result


def numbers() -> Result:
    """Return the largest deviation from NumPy of the kernel's values, for each way of linking."""
    result = Result()
    if is_emulated():
        result.skip("the kernel", "the emulated driver executes no kernels")
        return result
    table = result.table(
        f"Largest deviation from NumPy of {sample.ELEMENTS} values; 1 is the tolerance", "input", "deviation"
    )
    for _, asked, image, _why in _links(probes.device_arch() or "sm_90"):
        deviation = sample.launch(image.code)
        table.row(asked, f"{deviation:.4f}")
        result.check(f"{asked}: the deviation is {deviation}; expected at most 1", holds=deviation <= 1.0)
    return result


if __name__ == "__main__":
    {"dispatch": dispatch, "numbers": numbers}[sys.argv[1]]().write()
