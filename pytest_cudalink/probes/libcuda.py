"""The driver, ``libcuda.so.1``, through ctypes: opened at first use, never by an import."""

import ctypes
import errno
import os
import sys
from functools import cache
from typing import Final

#: Name under which the dynamic loader finds the driver.
LIBRARY_NAME = "nvcuda.dll" if sys.platform == "win32" else "libcuda.so.1"


#: Beginning of the name of a folder in which a driver is looked for that is hidden; the loader's errors have it.
HIDDEN: Final = "driver-hidden-by-option-absent"


class DriverNotFoundError(RuntimeError):
    """No CUDA driver was found. `missing`: why, in words of the loader."""

    def __init__(self, message: str, missing: str = "") -> None:
        super().__init__(message)
        self.missing = missing


class DriverError(RuntimeError):
    """A driver function returned an error code.

    `function`: such as ``"cuLinkAddData_v2"``.
    `code`: the CUresult.
    `name`: its name, such as ``"CUDA_ERROR_INVALID_IMAGE"``.
    """

    def __init__(self, function: str, code: int) -> None:
        self.function, self.code, self.name = function, code, error_name(code)
        super().__init__(f"{function} failed: {self.name} ({code})")


@cache
def library() -> ctypes.CDLL:
    """The driver library, opened once per process.

    Raises DriverNotFoundError if the machine has no driver, or if it is hidden from this process.
    Raises OSError if the library exists and cannot be opened.
    """
    remedy = "install the NVIDIA driver"
    try:
        driver = ctypes.CDLL(LIBRARY_NAME)
        if not hasattr(driver, "cudalinkAbsentDriver"):
            return driver
        missing = "--cudalink-driver=absent hides it"
        remedy = "omit that option"
    except FileNotFoundError as error:  # Windows
        missing = str(error)
    except OSError as error:
        missing = str(error)
        if HIDDEN in missing:
            missing, remedy = "--cudalink-driver=absent hides it", "omit that option"
        elif not _says_missing(missing):
            raise
    raise DriverNotFoundError(f"no CUDA driver: {missing}; {remedy}, or use another backend", missing)


def is_emulated() -> bool:
    """Whether the driver library of this process is the emulated driver; False without a driver."""
    try:
        return hasattr(library(), "cudalinkEmulatorVersion")
    except DriverNotFoundError:
        return False


def _says_missing(text: str) -> bool:
    """Whether the loader's message, in any language, says that this library is missing, and not one that it needs.

    glibc: ``libcuda.so.1: cannot open shared object file: No such file or directory``; musl: ``Error loading shared
    library libcuda.so.1: No such file or directory``, which goes on with ``(needed by …)`` for a dependency.
    """
    return f"{LIBRARY_NAME}:" in text and text.endswith(os.strerror(errno.ENOENT))


def error_name(code: int) -> str:
    """Name of a CUresult, from the driver."""
    text = ctypes.c_char_p()
    if library().cuGetErrorName(ctypes.c_int(code), ctypes.byref(text)) == 0 and text.value:
        return text.value.decode("ascii", "replace")
    return "unknown CUresult"


def call(function: str, *arguments: object) -> None:
    """Call a driver function.

    Raises DriverError if it does not return CUDA_SUCCESS.
    Raises DriverNotFoundError if there is no driver.
    """
    code = getattr(library(), function)(*arguments)
    if code:
        raise DriverError(function, code)
