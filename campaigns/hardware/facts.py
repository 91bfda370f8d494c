"""What the results of a machine depend on: its driver, device and clocks, Python and packages."""

import ctypes
import datetime as dt
import json
import os
import platform
import subprocess
import sys
from importlib import metadata
from pathlib import Path
from typing import Any

import pytest_cudalink
from campaigns.driver import Driver
from pytest_cudalink import probes
from pytest_cudalink.guardrails.driver import driver_release
from pytest_cudalink.probes.libcuda import is_emulated

ROOT = Path(__file__).parents[2]
_QUESTIONS = {
    "sm clock": "clocks.sm", "memory clock": "clocks.mem",
    "highest sm clock": "clocks.max.sm", "highest memory clock": "clocks.max.mem",
    "power limit": "power.limit", "compute mode": "compute_mode", "ECC": "ecc.mode.current", "MIG": "mig.mode.current",
}  # fmt: skip


def machine_facts() -> dict[str, Any]:
    """Return the facts of this machine and this environment, for the file of results."""
    bundle = Path(sys.prefix) / "bundle.json"
    packages = [(distribution.metadata["Name"], distribution.version) for distribution in metadata.distributions()]
    arch, name = probes.device_arch(), ctypes.create_string_buffer(256)
    Driver().do("cuDeviceGetName", name, 256, 0)
    return {
        "date": dt.datetime.now(dt.UTC).date().isoformat(),
        "version": metadata.version("pytest-cudalink"),
        "package": "checkout" if Path(pytest_cudalink.__file__).parents[1] == ROOT else "installed",
        "driver": {
            "release": driver_release(),
            "cuda": str(probes.driver_version()),
            "kind": "emulated" if is_emulated() else "real",
            "module": _kernel_module(),
        },
        "device": {"name": name.value.decode(), "arch": arch, **_clocks()},
        "machine": {
            "system": platform.platform(),
            "processor": _processor(),
            "cores": os.cpu_count() or 1,
            "python": platform.python_version(),
        },
        "packages": dict(sorted(packages, key=lambda package: str(package[0]).lower())),
        "bundle": json.loads(bundle.read_text(encoding="utf-8")) if bundle.is_file() else None,
    }


def _kernel_module() -> str:
    """Return the first line of the driver's kernel module, which says whether it is the open one."""
    try:
        first = Path("/proc/driver/nvidia/version").read_text(encoding="utf-8").splitlines()[0]
    except (OSError, IndexError):
        return "unknown: /proc/driver/nvidia/version is missing"
    return " ".join(first.removeprefix("NVRM version:").split())


def _clocks() -> dict[str, str]:
    """Return clocks, limits and modes as nvidia-smi gives them; empty where it does not run."""
    command = ["nvidia-smi", "-i", "0", f"--query-gpu={','.join(_QUESTIONS.values())}", "--format=csv,noheader"]
    try:
        done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=30)
    except (OSError, subprocess.TimeoutExpired):
        return {}
    values = [value.strip() for value in done.stdout.strip().split(",")]
    return dict(zip(_QUESTIONS, values, strict=True)) if len(values) == len(_QUESTIONS) else {}


def _processor() -> str:
    try:
        lines = Path("/proc/cpuinfo").read_text(encoding="utf-8").splitlines()
    except OSError:
        return platform.machine()
    return next((line.partition(":")[2].strip() for line in lines if line.startswith("model name")), platform.machine())
