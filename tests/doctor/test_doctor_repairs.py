"""The doctor on what NVIDIA publishes: every release of cuda-toolkit, mixtures, and what its command makes of them."""

from pathlib import Path

import pytest

from pytest_cudalink.cli.doctor import page
from pytest_cudalink.doctor import examine
from pytest_cudalink.guardrails.driver import DriverFacts
from pytest_cudalink.versions import CudaVersion
from tests.guardrails.planted import Environment, toolkit_versions


@pytest.fixture(autouse=True)
def _clean(monkeypatch) -> None:
    """The variable of cuda.pathfinder counts only where a test sets it."""
    monkeypatch.delenv("CUDA_PATHFINDER_COMPATIBILITY_GUARD_RAILS", raising=False)


def driver(cuda: str | None) -> DriverFacts:
    return DriverFacts(CudaVersion.parse(cuda) if cuda else None, None)


@pytest.mark.parametrize("version", toolkit_versions())
def test_every_toolkit_of_nvidia_is_coherent(tmp_path, monkeypatch, version: str) -> None:
    """All that ``cuda-toolkit[all]==X`` installs is of one release, as the wheels' own numbers need not say."""
    environment, release = Environment(tmp_path / "site-packages"), CudaVersion.parse(version)
    environment.install(f"cuda-toolkit[all]=={version}")
    monkeypatch.setattr(environment, "has_bindings", lambda: release >= (12, 3))  # they call no older nvJitLink
    report = examine(facts=driver("13.5" if release.major == 13 else "12.9"), system=environment)
    assert (report.exit_code, [finding for finding in report.findings if finding.severity != "note"]) == (0, [])
    assert len(report.items) > 10
    others = {item.name for item in report.items if item.version != release}
    assert others <= {"nvJitLink", "nvjitlink"}  # cuda-toolkit 13 bounds it from below only


#: A distribution that links at run time.
LINKS = "nvmath-python: packaging"
#: Requirements that are installed one after the other, the release of a toolkit outside, and the driver.
MIXTURES = {
    "newer NVRTC": (["cuda-toolkit[all]==13.0.2", "nvidia-cuda-nvrtc==13.2.*"], "", "13.5"),
    "older linker": (["cuda-toolkit[cudart,nvjitlink,nvrtc]==13.2.0", "nvidia-nvjitlink==13.0.*"], "", "13.5"),
    "linker older than all": (["cuda-toolkit[all]==12.9.1", "nvidia-nvjitlink-cu12==12.0.*"], "", "12.9"),
    "older runtime": (["cuda-toolkit[all]==13.5.0", "nvidia-cuda-runtime==13.0.*"], "", "13.5"),
    "older compiler": (["cuda-toolkit[all]==13.5.0", "nvidia-cuda-nvcc==13.2.*"], "", "13.5"),
    "three releases": (
        ["cuda-toolkit[all]==13.4.3", "nvidia-cuda-nvrtc==13.1.*", "nvidia-cuda-runtime==13.0.*"], "", "13.5",
    ),
    "two majors": (["cuda-toolkit[all]==12.9.1", "cuda-toolkit[nvrtc]==13.0.2"], "", "13.0"),
    "two majors, the older one for the driver": (
        ["cuda-toolkit[all]==12.9.1", "cuda-toolkit[cudart,nvrtc]==13.0.2"], "", "12.9",
    ),
    "driver of an older major": (["cuda-toolkit[all]==13.5.0"], "", "12.8"),
    "driver that no toolkit is of": (["cuda-toolkit[cudart,nvjitlink,nvrtc]==13.0.2"], "", "12.7"),
    "driver of an older minor": (["cuda-toolkit[cudart,nvjitlink,nvrtc]==13.4.3"], "", "13.1"),
    "newer linker for an older driver": (["cuda-toolkit[all]==13.0.2", "nvidia-nvjitlink==13.5.*"], "", "13.0"),
    "nothing links": (["cuda-toolkit[cudart,nvrtc]==13.2.2", LINKS], "", None),
    "the linker is too old, and there is no driver": (["cuda-toolkit[all]==12.1.1", LINKS], "", None),
    "a distribution requires another NVRTC": (
        ["cuda-toolkit[cudart,nvjitlink,nvrtc]==12.9.1", "framework: nvidia-cuda-nvrtc-cu12==12.8.93"], "", "12.9",
    ),
    "a distribution requires what is missing": (
        ["cuda-toolkit[cudart,nvrtc]==13.0.2", "nvidia-cuda-nvrtc==13.2.*", "framework: nvidia-cufft<13"], "", "13.2",
    ),
    "a distribution keeps the newer NVRTC": (
        ["cuda-toolkit[cccl,cudart,nvjitlink,nvrtc]==13.5.0", "nvidia-nvjitlink==13.2.*",
         "framework: nvidia-cuda-nvrtc>=13.5,<14"], "", "13.5",
    ),
    "a wheel outside of what the doctor looks for requires what goes": (
        ["cuda-toolkit[cudart,nvjitlink,nvrtc]==13.0.2", "nvidia-cufft: nvidia-nvjitlink"], "", "12.8",
    ),
    "a distribution forbids the newer linker": (
        ["cuda-toolkit[all]==13.0.2", "nvidia-cuda-nvcc==13.2.*", "nvidia-nvjitlink==13.5.*",
         "framework: nvidia-nvjitlink<13.5"], "", "13.5",
    ),
}  # fmt: skip


def planted(site: Path, installed: list[str], outside: str) -> Environment:
    """An environment in which these requirements were installed, each without regard to the others."""
    environment = Environment(site, outside)
    for word in installed:
        name, _, requires = word.partition(": ")
        if requires:
            environment.put(name, "1.0", requires)
        else:
            environment.install(word)
    return environment


@pytest.mark.parametrize("name", MIXTURES)
def test_the_command_ends_green(tmp_path, name: str) -> None:
    """One command repairs every fault of a mixture: after it, the verdict is coherent, and it names no further one."""
    installed, outside, cuda = MIXTURES[name]
    environment = planted(tmp_path / "site-packages", installed, outside)
    report = examine(facts=driver(cuda), system=environment)
    assert report.exit_code, report.findings
    (command,) = {str(f.fix) for f in report.findings if f.severity in ("error", "unknown") if str(f.fix)}
    environment.run(command)
    after = examine(facts=driver(cuda), system=environment)
    assert (after.exit_code, [finding for finding in after.findings if finding.severity != "note"]) == (0, []), command


@pytest.mark.parametrize(
    "installed",
    [
        ["cuda-toolkit[cudart,nvjitlink,nvrtc]==13.5.0", "nvidia-cuda-nvrtc==13.2.*"],
        ["cuda-toolkit[nvjitlink,nvrtc]==12.9.1", "nvidia-cuda-runtime-cu12==12.8.*"],
        ["cuda-toolkit[all]==13.5.0", "nvidia-cuda-cccl==13.3.4.3.1"],
        ["cuda-toolkit[cccl,cudart,nvrtc]==13.3.1", "nvidia-cuda-cccl==13.3.5.0.6"],
    ],
)
def test_parts_of_several_releases_that_nothing_couples(tmp_path, installed: list[str]) -> None:
    """An older NVRTC, an older runtime, newer headers: all of it works together, and is no fault."""
    environment = planted(tmp_path / "site-packages", installed, "")
    report = examine(facts=driver("13.5"), system=environment)
    assert (report.exit_code, [finding for finding in report.findings if finding.severity != "note"]) == (0, [])


def test_parts_outside_that_nothing_loads(tmp_path) -> None:
    """They are a note, which names them, whatever is installed."""
    installed = ["cuda-toolkit[cudart,nvjitlink,nvrtc]==13.5.0"]
    environment = planted(tmp_path / "site-packages", installed, "13.0")
    report = examine(facts=driver("13.5"), system=environment)
    (note,) = report.findings
    assert (report.exit_code, note.severity, note.kind, str(note.fix)) == (0, "note", "doctor", "")
    assert note.what == (
        f"not used: parts of CUDA 13.0 outside of this environment (nvvm library at {tmp_path}/cuda/nvvm/lib64/"
        "libnvvm.so.4 and 5 more) do not fit the toolkit in it, or the driver; their programs use the parts "
        "beside them"
    )
    environment.put("cuda-pathfinder", "1.9")
    environment.put("numba-cuda", "1.0", "cuda-pathfinder")
    assert examine(facts=driver("13.5"), system=environment).exit_code == 0


@pytest.mark.parametrize("version", toolkit_versions()[::13])
@pytest.mark.parametrize("extras", ["cudart", "nvrtc", "cudart,nvjitlink,nvrtc", "nvjitlink"])
@pytest.mark.parametrize("cuda", [None, "12.9", "13.5"])
def test_coherent_never_stands_beside_failing_links(tmp_path, version: str, extras: str, cuda: str | None) -> None:
    """Where neither driver nor nvJitLink links, that is a fault; a note says what one policy does not link."""
    environment = planted(tmp_path / "site-packages", [f"cuda-toolkit[{extras}]=={version}", LINKS], "")
    report = examine(facts=driver(cuda), system=environment)
    lines = [text for text, _ in page(report)]
    (links,) = [line for line in lines if line.startswith("Links ")]
    assert report.exit_code or "fail" not in links, lines
    assert ("not linked" not in links) or any("does not link LTO-IR here" in line for line in lines)
