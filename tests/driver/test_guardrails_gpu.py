"""The guard rails on the driver that is there; on a machine with a GPU the real one."""

import re
import subprocess

import pytest

from pytest_cudalink import probes
from pytest_cudalink.doctor import examine
from pytest_cudalink.emulator import preload
from pytest_cudalink.guardrails import CompatibilityGuardRails, DriverCtkCompatibilityError
from pytest_cudalink.guardrails.driver import DriverFacts, driver_release


def test_facts_of_the_driver() -> None:
    """CUDA version and release are those that the driver and its tools give."""
    facts = DriverFacts()
    assert facts.cuda().value == probes.driver_version()
    assert facts.release().value == driver_release()
    assert re.fullmatch(r"\d+(\.\d+){1,2}", facts.release().value)
    if not preload.emulated_driver():
        command = ["nvidia-smi", "--query-gpu=driver_version", "--format=csv,noheader"]
        shown = subprocess.run(command, capture_output=True, text=True, check=True).stdout.split()
        assert facts.release().value == shown[0]


def test_nvml_stays_usable() -> None:
    """Asking again and again leaves NVML's count balanced for other users."""
    assert len({driver_release() for _ in range(50)}) == 1


def test_strict_against_the_driver(toolkit) -> None:
    """The toolkit is accepted exactly when the driver's own numbers say so."""
    facts = DriverFacts()
    guard = CompatibilityGuardRails()
    if facts.cuda().value.major >= toolkit.major:
        assert guard.load_nvidia_dynamic_lib("nvrtc").abs_path
        assert guard.remembered[0].version == toolkit
    else:
        with pytest.raises(DriverCtkCompatibilityError):
            guard.load_nvidia_dynamic_lib("nvrtc")


def test_doctor_sees_the_driver() -> None:
    """The report names version, release, kind, file and device."""
    driver = examine().driver
    assert driver["version"] == str(probes.driver_version())
    assert driver["release"] == driver_release()
    assert driver["kind"] == ("emulated" if preload.emulated_driver() else "real")
    assert driver["path"].rpartition("/")[2].startswith("libcuda.so")
    assert driver["arch"] == probes.device_arch()


def test_plugin_strict_on_the_driver(pytester, run_pytest, toolkit) -> None:
    """A run with strict guard rails on this driver passes when the toolkit fits."""
    if DriverFacts().cuda().value < toolkit:
        pytest.skip("this driver is older than the toolkit")
    module = "import cuda.pathfinder as pf\ndef test(): pf.load_nvidia_dynamic_lib('nvJitLink')\n"
    pytester.makepyfile(module)
    result = run_pytest("--cudalink-guard-rails=strict")
    assert result.ret == 0
    result.stdout.fnmatch_lines(["mode strict (from option): 1 compatible"])
