"""Fixtures of the audit's tests: the stubs, and child processes, as the stubs' tests have them; and wheels."""

import zipfile
from collections.abc import Callable, Mapping
from pathlib import Path

import pytest

from pytest_cudalink import toolchains
from tests.stubs.conftest import compile_c, run, stubs

__all__ = ["built", "cuda_library", "make_wheel", "run", "stubs", "toolchain"]


@pytest.fixture
def cuda_library(tmp_path: Path) -> Callable[..., Path]:
    """Make a library with the name, the symbol version and the given symbols of CUDA's: to link with, not to call."""

    def make(name: str, *symbols: str, node: str | None = "") -> Path:
        folder = tmp_path / "cuda-libraries"
        folder.mkdir(exist_ok=True)
        flags = []
        if node is not None:
            script = folder / f"{name}.map"
            script.write_text(f"{node or name} {{ global: {';'.join(symbols)}; local: *; }};", encoding="utf-8")
            flags.append(f"-Wl,--version-script={script}")
        source = "".join(f"int {symbol}(void) {{ return 0; }}\n" for symbol in symbols)
        return compile_c(folder / name, source, *flags)

    return make


@pytest.fixture
def built(tmp_path: Path) -> Callable[..., Path]:
    """Compile a library that calls one function of each given library: ``built("x.so", {library: symbol})``."""

    def make(name: str, calls: Mapping[Path, str], extra: str = "", *flags: str) -> Path:
        declared = "".join(f"extern int {symbol}();\n" for symbol in calls.values())
        called = " + ".join(f"{symbol}(0)" for symbol in calls.values()) or "0"
        source = f"{declared}{extra}\nint use(void) {{ return {called}; }}"
        return compile_c(tmp_path / "tree" / name, source, *flags, *map(str, calls))

    return make


@pytest.fixture
def make_wheel(tmp_path: Path) -> Callable[..., Path]:
    """Pack files, by their name in the wheel, and METADATA with the given requirements and extras."""

    def make(name: str, files: Mapping[str, Path | bytes], *requires: str, extras: tuple[str, ...] = ()) -> Path:
        distribution, version = name.split("-")[:2]
        lines = [f"Name: {distribution}", f"Version: {version.partition('+')[0]}"]
        lines += [f"Provides-Extra: {extra}" for extra in extras]
        lines += [f"Requires-Dist: {line}" for line in requires]
        path = tmp_path / name
        with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as archive:
            for inside, content in files.items():
                archive.writestr(inside, content if isinstance(content, bytes) else content.read_bytes())
            archive.writestr(
                f"{distribution}-{version}.dist-info/METADATA", "\n".join(["Metadata-Version: 2.1", *lines, "", ""])
            )
        return path

    return make


@pytest.fixture(scope="session")
def toolchain() -> toolchains.Toolchain:
    """CUDA 13.0, in the cache: `--assemble` fetches nothing."""
    return toolchains.add("13.0")
