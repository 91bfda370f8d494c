"""The driver's CUDA version, by ``cuDriverGetVersion``, and its release, by NVML. Each is asked lazily and once."""

import ctypes
import re
import sys
from typing import Final

from .. import probes
from ..probes import elsewhere, libcuda
from ..versions import CudaVersion
from .items import Fact

_RELEASE: Final = re.compile(r"\d+(\.\d+){1,2}", re.ASCII)
_NVML = "nvml.dll" if sys.platform == "win32" else "libnvidia-ml.so.1"
_RELEASE_SIZE = 80  # NVML_SYSTEM_DRIVER_VERSION_BUFFER_SIZE


class NvmlError(RuntimeError):
    """NVML is not installed, or one of its functions failed."""


def _nvml() -> ctypes.CDLL:
    try:
        return ctypes.CDLL(_NVML)
    except OSError as error:
        raise NvmlError(f"no NVML: {error}") from error


def _check(function: str, code: int) -> None:
    if code:
        raise NvmlError(f"{function} failed with {code}")


def branch_of(release: str) -> int:
    """The branch of a driver release: 580 of ``"580.65.06"``.

    Raises ValueError if the text is not two or three numbers with dots.
    """
    if not _RELEASE.fullmatch(release):
        raise ValueError(f"{release!r} is not a driver release; write two or three numbers, such as '580.65.06'")
    return int(release.partition(".")[0])


def driver_release() -> str:
    """Release of the driver, such as ``"580.65.06"``, from NVML.

    Raises NvmlError if NVML is not installed, fails, or answers with another form of text.
    """
    nvml = _nvml()
    for function in ("nvmlInit_v2", "nvmlSystemGetDriverVersion", "nvmlShutdown"):
        if not hasattr(nvml, function):
            raise NvmlError(f"an NVML without {function}")
    text = ctypes.create_string_buffer(_RELEASE_SIZE)
    _check("nvmlInit_v2", nvml.nvmlInit_v2())  # NVML counts these and shutdowns, so that other users are not affected
    try:
        _check("nvmlSystemGetDriverVersion", nvml.nvmlSystemGetDriverVersion(text, ctypes.c_uint(_RELEASE_SIZE)))
    finally:
        code = nvml.nvmlShutdown()
    _check("nvmlShutdown", code)
    release = text.value.decode("ascii", "replace")
    try:
        branch_of(release)
    except ValueError as error:
        raise NvmlError(str(error)) from error
    return release


def _ask_cuda() -> Fact:
    number = ctypes.c_int()
    try:
        libcuda.call("cuDriverGetVersion", ctypes.byref(number))
        version = CudaVersion.from_driver(number.value)
    # no driver, an error code, a library that cannot be opened, or one without the function
    except (RuntimeError, OSError, ValueError, AttributeError) as error:
        return Fact(None, str(error), absent=isinstance(error, libcuda.DriverNotFoundError))
    return Fact(version, f"cuDriverGetVersion answers {number.value}")


def _ask_elsewhere() -> Fact:
    version = probes.driver_version_elsewhere()
    if version is None:
        problem = elsewhere.driver().problem
        witness = f"no CUDA driver: {problem}" if problem else "cuDriverGetVersion failed"
        return Fact(None, witness, absent=bool(problem))
    return Fact(version, f"cuDriverGetVersion answers {version.major * 1000 + version.minor * 10}")


def parse_cuda_version(value: object) -> CudaVersion | None:
    """Read the argument ``driver_cuda_version``.

    `value`: the number of ``cuDriverGetVersion`` (12080), ``"12.8"`` or ``(12, 8)``.
    Raises ValueError if it has another form.
    """
    match value:
        case None:
            return None
        case bool():
            pass
        case int() if value >= 1000:
            return CudaVersion.from_driver(value)
        case str():
            return CudaVersion.parse(value)
        case (int(major), int(minor)):
            return CudaVersion(major, minor)
    msg = f"driver_cuda_version = {value!r}; expected a number of cuDriverGetVersion such as 13000, '13.0' or (13, 0)"
    raise ValueError(msg)


def parse_release(value: object) -> str | None:
    """Read the argument ``driver_release_version``: two or three numbers such as ``"580.65.06"``, or None.

    Raises ValueError if it has another form.
    """
    if value is None:
        return None
    if not isinstance(value, str):
        msg = f"driver_release_version = {value!r}; expected a string such as '580.65.06'"
        raise ValueError(msg)  # noqa: TRY004 (one error for every invalid value)
    branch_of(value)
    return value


class DriverFacts:
    """The driver of this machine, or given facts about it.

    The two answers are independent: if NVML fails, the CUDA version stays known, and NVML is asked only where the
    versions do not decide. A fake of `pytest_cudalink.probes` counts as the driver's answer and is not cached.

    `cuda_version`: instead of asking ``cuDriverGetVersion``.
    `release_version`: instead of asking NVML.
    `assume_forward`: whether an incompatible driver passes, because NVIDIA's forward-compatibility package is
    installed.
    `hint`: appended to the advice of a refusal: how to set `assume_forward`.
    `asks_elsewhere`: whether another process asks for the CUDA version, so that this one makes no call of the driver.
    """

    def __init__(self, cuda_version: CudaVersion | None = None, release_version: str | None = None) -> None:
        self._given_cuda = cuda_version and Fact(cuda_version, "given as driver_cuda_version", stated=True)
        self._given_release = release_version and Fact(release_version, "given as driver_release_version")
        self.asks_elsewhere = False
        self.assume_forward, self.hint = False, ""
        self._cuda: Fact | None = None
        self._release: Fact | None = None

    def cuda(self) -> Fact:
        """CUDA version of the driver; None with the reason if unknown."""
        if self._given_cuda:
            return self._given_cuda
        faked = probes.fakes()
        if faked.fakes_driver:
            return Fact(faked.driver, "faked by pytest_cudalink.probes.fake", stated=True)
        if self._cuda is None:
            self._cuda = _ask_elsewhere() if self.asks_elsewhere else _ask_cuda()
        return self._cuda

    def release(self) -> Fact:
        """Release of the driver; None with the reason if unknown."""
        if self._given_release:
            return self._given_release
        if self._given_cuda or probes.fakes().fakes_driver:
            return Fact(None, "the CUDA version of the driver is given, its release is not")
        if self._release is None:
            try:
                self._release = Fact(driver_release(), "nvmlSystemGetDriverVersion")
            except NvmlError as error:
                self._release = Fact(None, str(error))
        return self._release

    def cache_clear(self) -> None:
        """Forget the answers, to ask again."""
        self._cuda = self._release = None
