"""The sample on this machine: ``python -m campaigns.hardware.samples dispatch`` or ``numbers``."""

import sys

from campaigns.hardware.result import Result
from pytest_cudalink import probes
from pytest_cudalink.linker import sample
from pytest_cudalink.probes.libcuda import is_emulated
from pytest_cudalink.targets.base import Backend

#: Kinds of input and backends that can link them; None lets the table choose.
WAYS: tuple[tuple[str, Backend | None], ...] = (
    *(("ptx", None), ("ptx", "driver"), ("ptx", "nvjitlink")),
    *(("cubin", None), ("cubin", "driver"), ("cubin", "nvjitlink")),
    *(("ltoir", None), ("ltoir", "nvjitlink")),
)


def dispatch() -> Result:
    """Return the versions that the probes find, and the decision for each kind of input; each way must link."""
    result = Result()
    table = result.table("What the probes find", "what", "value")
    arch = probes.device_arch()
    result.check("the device has no architecture; expected one such as sm_90", holds=arch is not None)
    for what, value in (
        ("driver", f"CUDA {probes.driver_version()}"),
        ("device", arch),
        ("nvJitLink", f"{probes.nvjitlink_version()}"),
    ):
        table.row(what, value)
    chosen = result.table("Decisions", "input", "backend", "image", "reason")
    for mode, backend in WAYS:
        image, why = sample.link_sample(mode, arch or "sm_90", backend)
        asked = f"{mode}, {backend} forced" if backend else mode
        chosen.row(asked, why.partition(" ")[0], f"{len(image.code)} bytes", why)
        proved = sample.prove(mode, image)
        result.check(f"{asked}: the image is wrong: {proved.text}", holds=proved.ok)
    return result


def numbers() -> Result:
    """Return the largest deviation from NumPy of the kernel's values, for each way of linking."""
    result = Result()
    arch = probes.device_arch() or "sm_90"
    if is_emulated():
        result.skip("the kernel", "the emulated driver executes no kernels")
        return result
    table = result.table(
        f"Largest deviation from NumPy of {sample.ELEMENTS} values; 1 is the tolerance", "input", "deviation"
    )
    for mode, backend in WAYS:
        image, _ = sample.link_sample(mode, arch, backend)
        deviation = sample.launch(image.code)
        asked = f"{mode}, {backend} forced" if backend else mode
        table.row(asked, f"{deviation:.4f}")
        result.check(f"{asked}: the deviation is {deviation}; expected at most 1", holds=deviation <= 1.0)
    return result


def main() -> int:
    """Print the result of one of the two."""
    {"dispatch": dispatch, "numbers": numbers}[sys.argv[1]]().write()
    return 0


if __name__ == "__main__":
    sys.exit(main())
