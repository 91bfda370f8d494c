"""Environments of metadata folders and empty files: what cuda-toolkit installs, and what a command changes."""

import shlex
import shutil
from collections.abc import Iterator, Mapping, Sequence
from functools import cache
from pathlib import Path
from typing import Final

from packaging.requirements import Requirement
from packaging.version import Version

from pytest_cudalink.audit.environment import EnvironmentAudit, audit_environment
from pytest_cudalink.base.install_command import Installer
from pytest_cudalink.base.tables import read_table
from pytest_cudalink.doctor.system import Copy, DriverFile, System
from pytest_cudalink.guardrails import attribution
from pytest_cudalink.guardrails.guard import make_item
from pytest_cudalink.guardrails.items import Fact, Item, ItemKind

#: The wheels of CUDA 12 and 13, by their names without prefix, and the parts of the toolkit in them.
_PARTS: Final[Mapping[int, Mapping[str, Sequence[tuple[ItemKind, str, str]]]]] = {
    12: {
        "nvidia-cuda-runtime-cu12": [
            ("dynamic-libs", "cudart", "nvidia/cuda_runtime/lib/libcudart.so.12"),
            ("headers", "cudart", "nvidia/cuda_runtime/include/cuda_runtime.h"),
            ("static-libs", "cudadevrt", "nvidia/cuda_runtime/lib/libcudadevrt.a"),
        ],
        "nvidia-cuda-nvrtc-cu12": [
            ("dynamic-libs", "nvrtc", "nvidia/cuda_nvrtc/lib/libnvrtc.so.12"),
            ("headers", "nvrtc", "nvidia/cuda_nvrtc/include/nvrtc.h"),
        ],
        "nvidia-nvjitlink-cu12": [
            ("dynamic-libs", "nvJitLink", "nvidia/nvjitlink/lib/libnvJitLink.so.12"),
            ("headers", "nvjitlink", "nvidia/nvjitlink/include/nvJitLink.h"),
        ],
        "nvidia-nvfatbin-cu12": [("dynamic-libs", "nvfatbin", "nvidia/nvfatbin/lib/libnvfatbin.so.12")],
        "nvidia-cuda-cccl-cu12": [("headers", "cccl", "nvidia/cuda_cccl/include/cuda/std/version")],
        "nvidia-cuda-nvcc-cu12": [
            ("dynamic-libs", "nvvm", "nvidia/cuda_nvcc/nvvm/lib64/libnvvm.so.4"),
            ("headers", "nvcc", "nvidia/cuda_nvcc/include/fatbinary_section.h"),
            ("headers", "nvvm", "nvidia/cuda_nvcc/nvvm/include/nvvm.h"),
            ("bitcode-libs", "device", "nvidia/cuda_nvcc/nvvm/libdevice/libdevice.10.bc"),
            ("binaries", "ptxas", "nvidia/cuda_nvcc/bin/ptxas"),
        ],
    },
    13: {
        "nvidia-cuda-runtime": [
            ("dynamic-libs", "cudart", "nvidia/cu13/lib/libcudart.so.13"),
            ("headers", "cudart", "nvidia/cu13/include/cuda_runtime.h"),
            ("static-libs", "cudadevrt", "nvidia/cu13/lib/libcudadevrt.a"),
        ],
        "nvidia-cuda-nvrtc": [
            ("dynamic-libs", "nvrtc", "nvidia/cu13/lib/libnvrtc.so.13"),
            ("headers", "nvrtc", "nvidia/cu13/include/nvrtc.h"),
        ],
        "nvidia-nvjitlink": [
            ("dynamic-libs", "nvJitLink", "nvidia/cu13/lib/libnvJitLink.so.13"),
            ("headers", "nvjitlink", "nvidia/cu13/include/nvJitLink.h"),
        ],
        "nvidia-nvfatbin": [("dynamic-libs", "nvfatbin", "nvidia/cu13/lib/libnvfatbin.so.13")],
        "nvidia-cuda-cccl": [("headers", "cccl", "nvidia/cu13/include/cccl/cuda/std/version")],
        "nvidia-cuda-crt": [("headers", "nvcc", "nvidia/cu13/include/fatbinary_section.h")],
        "nvidia-nvvm": [
            ("dynamic-libs", "nvvm", "nvidia/cu13/lib/libnvvm.so.4"),
            ("headers", "nvvm", "nvidia/cu13/include/nvvm.h"),
            ("bitcode-libs", "device", "nvidia/cu13/nvvm/libdevice/libdevice.10.bc"),
        ],
        "nvidia-cuda-nvcc": [
            ("binaries", "nvcc", "nvidia/cu13/bin/nvcc"),
            ("binaries", "ptxas", "nvidia/cu13/bin/ptxas"),
            ("binaries", "nvlink", "nvidia/cu13/bin/nvlink"),
        ],
        "nvidia-cuda-nvdisasm": [("binaries", "nvdisasm", "nvidia/cu13/bin/nvdisasm")],
        "nvidia-cuda-cuobjdump": [("binaries", "cuobjdump", "nvidia/cu13/bin/cuobjdump")],
    },
}
#: The parts of a toolkit outside of wheels.
_OUTSIDE: Final[Sequence[tuple[ItemKind, str, str]]] = (
    ("dynamic-libs", "nvvm", "nvvm/lib64/libnvvm.so.4"),
    ("headers", "cudart", "include/cuda_runtime.h"),
    ("headers", "cccl", "include/cccl/cuda/std/version"),
    ("headers", "nvcc", "include/fatbinary_section.h"),
    ("static-libs", "cudadevrt", "lib64/libcudadevrt.a"),
    ("bitcode-libs", "device", "nvvm/libdevice/libdevice.10.bc"),
    ("binaries", "nvcc", "bin/nvcc"),
    ("binaries", "ptxas", "bin/ptxas"),
)


@cache
def _toolkits() -> dict[str, dict[str, list[str]]]:
    versions: dict[str, dict[str, list[str]]] = read_table("toolkit_extras.toml")["versions"]
    return versions


def toolkit_versions() -> list[str]:
    """Every version of cuda-toolkit from 12.0 on."""
    return list(_toolkits())


@cache
def _known(name: str) -> list[str]:
    """Every version of a wheel that a cuda-toolkit requires, oldest first."""
    lines = {line for extras in _toolkits().values() for lines in extras.values() for line in lines}
    versions = {requirement.version.removesuffix(".*") for line in lines if (need := Requirement(line)).name == name
             for requirement in need.specifier if requirement.operator in ("==", ">=")}  # fmt: skip
    return sorted(versions, key=Version)


class Environment(System):
    """An environment of wheels at `site`, and of a toolkit of a release outside, which is empty for none."""

    def __init__(self, site: Path, outside: str = "") -> None:
        self.site = site
        self.wheels: dict[str, tuple[str, tuple[str, ...]]] = {}
        self.toolkit = site.parent / "cuda"
        if outside:
            (self.toolkit / "include").mkdir(parents=True)
            major, minor = map(int, outside.split("."))
            (self.toolkit / "include" / "cuda.h").write_text(f"#define CUDA_VERSION {major * 1000 + minor * 10}\n")

    # -- what a package manager does

    def put(self, name: str, version: str, *requires: str) -> None:
        """Install one version of a wheel, with its requirements and empty files."""
        self.take(name)
        self.wheels[name] = version, requires
        info = self.site / f"{name.replace('-', '_')}-{version}.dist-info"
        info.mkdir(parents=True)
        lines = [f"Requires-Dist: {line}" for line in requires]
        if name == "cuda-toolkit":
            lines = [f'Requires-Dist: {line}; extra == "{extra}"' for extra, some in _toolkits()[version].items()
                     for line in some]  # fmt: skip
        head = f"Metadata-Version: 2.1\nName: {name}\nVersion: {version}\n"
        (info / "METADATA").write_text(head + "".join(f"{line}\n" for line in lines), encoding="utf-8")
        (info / "INSTALLER").write_text("pip\n", encoding="utf-8")
        (info / "RECORD").write_text("".join(f"{path},,\n" for _, _, path in self._of(name)), encoding="utf-8")

    def take(self, name: str) -> None:
        """Uninstall a wheel."""
        if name in self.wheels:
            version, _ = self.wheels.pop(name)
            shutil.rmtree(self.site / f"{name.replace('-', '_')}-{version}.dist-info")

    def install(self, *words: str) -> None:
        """Install requirements as pip does: the newest versions that satisfy all of them, and what they require."""
        asked = [Requirement(word) for word in words]
        (self.site).mkdir(parents=True, exist_ok=True)
        toolkits = [requirement for requirement in asked if requirement.name == "cuda-toolkit"]
        extras = {extra for toolkit in toolkits for extra in toolkit.extras}
        own = [requirement for requirement in asked if requirement.name != "cuda-toolkit"]
        for version in reversed(toolkit_versions()) if toolkits else [""]:
            if not all(toolkit.specifier.contains(version) for toolkit in toolkits):
                continue
            known = _toolkits().get(version, {})
            chosen = known if "all" in extras else extras & known.keys()
            needs = [*own, *(Requirement(line) for extra in chosen for line in known[extra])]
            newest = {need.name: self._newest(need.name, needs) for need in needs}
            if all(newest.values()):
                if version:
                    self.put("cuda-toolkit", version)
                for name, package in newest.items():
                    self.put(name, package)
                return
        raise AssertionError(words)  # the command cannot be satisfied

    def _newest(self, name: str, needs: Sequence[Requirement]) -> str:
        """The installed version if all requirements accept it, else the newest known one that they accept."""
        asked = [need.specifier for need in needs if need.name == name]
        here = self.wheels.get(name, ("", ()))[0]
        known = [*_known(name), *([here] if here else [])] or ["1.0"]
        return next((release for release in reversed(known) if all(spec.contains(release) for spec in asked)), "")

    def run(self, command: str) -> None:
        """Run a command of the doctor."""
        for part in command.split(" && "):
            words = shlex.split(part.removeprefix("pip "))
            if words[0] == "uninstall":
                for name in (word for word in words[1:] if not word.startswith("-")):
                    self.take(name)
            else:
                assert words[0] == "install", command
                self.install(*words[1:])

    # -- what the doctor asks

    @staticmethod
    def _of(name: str) -> Sequence[tuple[ItemKind, str, str]]:
        return [part for wheels in _PARTS.values() for part in wheels.get(name, ())]

    def driver(self, cuda: Fact) -> DriverFile:
        return super().driver(cuda)._replace(arch=None)

    def item(self, kind: ItemKind, name: str) -> Item | None:
        """Find the part in wheels, those of CUDA 13 first as cuda.pathfinder does, then in the toolkit outside."""
        attribution.cache_clear()
        for major in (13, 12):
            for wheel, parts in _PARTS[major].items():
                for part in parts:
                    if wheel in self.wheels and part[:2] == (kind, name):
                        return make_item(kind, name, self._shown(kind, self.site / part[2]), "site-packages")
        for part in _OUTSIDE if self.toolkit.is_dir() else ():
            if part[:2] == (kind, name):
                return make_item(kind, name, self._shown(kind, self.toolkit / part[2]), "system-ctk-root")
        return None

    @staticmethod
    def _shown(kind: ItemKind, path: Path) -> str:
        if kind != "headers":
            return str(path)
        return str(path.parent.parent.parent if path.name == "version" else path.parent)

    def damage(self, item: Item) -> str:
        return ""

    def copies_in_process(self) -> Iterator[Copy]:
        return iter(())

    def copies_for_loader(self) -> Iterator[Copy]:
        return iter(())

    def installer(self, items: object) -> Installer:
        return Installer()

    def has_bindings(self) -> bool:
        return True

    def versions(self) -> dict[str, str]:
        return {name: version for name, (version, _) in self.wheels.items()}

    def environment(self) -> EnvironmentAudit:
        return audit_environment(self.site, measure=False)
