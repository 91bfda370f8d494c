"""The build hook: compiles the native libraries into the wheel, or into the source tree for an editable install."""

from __future__ import annotations

import os
import re
import shutil
import sys
import sysconfig
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from hatchling.builders.hooks.plugin.interface import BuildHookInterface

ROOT = Path(__file__).parent


#: Environment variable: the target of zig to build a wheel for, such as ``x86_64-linux-gnu.2.17``. Without it the
#: machine's compiler builds for this machine.
TARGET = "CUDALINK_WHEEL_TARGET"


class NativeBuildHook(BuildHookInterface):  # type: ignore[misc] # (hatchling is not there when types are checked)
    """Build hook of hatchling that compiles every library that `native_build` and the stubs' catalog name."""

    PLUGIN_NAME = "custom"

    def dependencies(self) -> list[str]:
        """Return the compiler to install for the build: none where the machine has one."""
        if os.environ.get(TARGET):
            return ["ziglang"]
        if os.environ.get("CC") or any(map(shutil.which, ("cc", "gcc", "clang"))) or sys.platform != "linux":
            return []
        return ["ziglang"]

    def initialize(self, version: str, build_data: dict[str, Any]) -> None:
        """Compile the libraries, and record their places and the wheel's platform in `build_data`."""
        if sys.platform != "linux":
            return  # the C is written for Linux: what is pure Python is installed
        package = ROOT / "pytest_cudalink"
        sys.path.insert(0, str(ROOT))
        from native_build import sources
        from pytest_cudalink.base import compiler
        from pytest_cudalink.stubs import c_source as stubs

        build_data["pure_python"] = False
        target = os.environ.get(TARGET)
        platform = sources.wheel_platform(target) if target else re.sub(r"[-.]", "_", sysconfig.get_platform())
        build_data["tag"] = f"py3-none-{platform}"
        command = sources.zig_for(target) if target else None

        def parts() -> Iterator[tuple[str, Any]]:  # the stubs are generated only where they are built
            yield from sources.libraries(compiler)
            yield from (("stubs", one) for one in stubs.libraries())

        if version == "editable":
            with sources.building(ROOT, compiler.find_compiler) as current:
                for part, library in () if current else parts():
                    compiler.build(library, package / part / "lib")
            return
        self._scratch = tempfile.TemporaryDirectory(prefix="cudalink-build-")
        for part, library in parts():
            folder = Path(self._scratch.name) / part / "lib"
            built = compiler.build(library, folder, command, flags=sources.reproducible_flags(ROOT))
            build_data["force_include"][str(built)] = f"pytest_cudalink/{part}/lib/{library.output}"

    def finalize(self, version: str, build_data: dict[str, Any], artifact_path: str) -> None:
        """Remove the temporary folder with the libraries of a wheel."""
        del version, build_data, artifact_path
        if hasattr(self, "_scratch"):
            self._scratch.cleanup()
