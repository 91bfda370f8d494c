"""The guard rails on emulated drivers: the driver rule, asked of a driver and of its NVML."""

import json
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent.parent

#: What every release of the toolkit would get from the driver of this process, and what the driver was asked.
VERDICTS = """
import json, sys
from pytest_cudalink.guardrails.driver import DriverFacts
from pytest_cudalink.guardrails.items import Item
from pytest_cudalink.guardrails.rules import check_driver
from pytest_cudalink.versions import CudaVersion

facts, answers = DriverFacts(), {}
for release in sys.argv[1:]:
    item = Item("dynamic-libs", "nvrtc", "/x", "site-packages", "ctk", CudaVersion.parse(release), "given")
    answers[release] = check_driver(item, facts).status
print(json.dumps([str(facts.cuda().value), facts.release().value, answers]))
"""


@pytest.fixture
def child() -> Callable[..., subprocess.CompletedProcess[str]]:
    """Run Python on an emulated driver through the command."""

    def run(version: str, release: str | None, *arguments: str) -> subprocess.CompletedProcess[str]:
        command = [sys.executable, "-m", "pytest_cudalink.cli", "driver", "run", "--version", version]
        command += ["--release", release] if release else []
        command += ["--", sys.executable, *arguments]
        return subprocess.run(command, capture_output=True, text=True, check=False, cwd=ROOT)

    return run


FINE, NO = "compatible", "incompatible"


@pytest.mark.parametrize(
    ("version", "release", "expected"),
    [
        pytest.param("12.0", "525.60.13", {"12.0": FINE, "12.9": FINE, "13.0": NO}, marks=pytest.mark.slow),
        pytest.param("12.0", "520.30.01", {"12.0": FINE, "12.9": NO, "13.0": NO}, marks=pytest.mark.slow),
        pytest.param("12.8", None, {"12.8": FINE, "12.9": FINE, "13.0": NO, "11.8": FINE}, marks=pytest.mark.slow),
        ("13.0", "580.65.06", {"12.9": FINE, "13.0": FINE, "13.2": FINE}),
        ("13.0", "570.1", {"12.9": FINE, "13.0": FINE, "13.2": NO}),
        ("13.2", None, {"12.9": FINE, "13.0": FINE, "13.2": FINE, "14.0": NO}),
    ],
)
def test_driver_rule(child, version: str, release: str | None, expected) -> None:
    """Version and release come from the driver and NVML, and decide as the table of the rules says."""
    done = child(version, release, "-c", VERDICTS, *expected)
    cuda, branch, answers = json.loads(done.stdout)
    assert (cuda, answers) == (version, expected), done.stderr
    assert release in (None, branch)
    assert branch


LOADS = """
from pytest_cudalink.guardrails import CompatibilityGuardRails, DriverCtkCompatibilityError
guard = CompatibilityGuardRails()
try:
    guard.load_nvidia_dynamic_lib("nvrtc")
except DriverCtkCompatibilityError as error:
    print(error)
print("libnvrtc" in open("/proc/self/maps").read())
"""


@pytest.mark.slow
def test_strict_guard_rails(child, toolkit) -> None:
    """Refused before NVRTC is in the process, with the driver's own answer as the witness, unless it is new enough."""
    assert child(str(toolkit), None, "-c", LOADS).stdout == "True\n"
    done = child("12.0", "520.30.01", "-c", LOADS)
    assert f"the driver does not run CUDA {toolkit}" in done.stdout, done.stderr
    assert "CUDA 12.0: cuDriverGetVersion answers 12000" in done.stdout
    assert done.stdout.splitlines()[-1] == "False"


#: The page on what the wheels of every session bring; another toolkit of the machine is not looked at.
DOCTOR = """
from pytest_cudalink.cli import main
from pytest_cudalink import doctor
doctor.LOOKED_FOR = {"dynamic-libs": ("cudart", "nvrtc", "nvJitLink"), "headers": ("cudart", "nvrtc", "nvjitlink")}
raise SystemExit(main(["doctor", "--verbose"]))
"""


@pytest.mark.slow
def test_doctor(child, toolkit) -> None:
    """The page says that the driver is emulated, where it lies, its release, and what would not run."""
    for version, code, words in (("13.2", 0, "Verdict: coherent"), ("12.8", 1, "does not run CUDA 13.0")):
        done = child(version, None, "-c", DOCTOR)
        lines = [line.split() for line in done.stdout.splitlines()]
        assert (done.returncode, words in done.stdout) == (code, True), done.stdout
        assert ["CUDA", "version", "CUDA", version, "cuDriverGetVersion", "answers"] in [line[:6] for line in lines]
        ((_, kind, place, *_),) = [line for line in lines if line[:1] == ["kind"]]
        assert (kind, place.endswith("libcuda.so.1"), ["device", "sm_90"] in lines) == ("emulated", True, True)


def test_links_of_the_emulated_driver_are_not_judged(child, toolkit) -> None:
    """The emulated driver's nvJitLink is in its link worker, not in this process."""
    program = """
from pytest_cudalink.linker import sample as demo
from pytest_cudalink.guardrails import CompatibilityGuardRails
image, _ = demo.link_sample("ptx", "sm_90", "driver")
assert "libnvJitLink" not in open("/proc/self/maps").read()
guard = CompatibilityGuardRails()
print([(item.name, str(item.version)) for item in guard.present() if item.name == "nvJitLink"])
guard.load_nvidia_dynamic_lib("nvJitLink")
print([(item.name, str(item.version)) for item in guard.remembered])
"""
    done = child("13.2", None, "-c", program)
    assert done.stdout.splitlines() == ["[]", f"[('nvJitLink', '{toolkit}')]"], done.stderr
