"""The words of each rule: what a verdict says, and what it advises."""

from __future__ import annotations

import pickle

import pytest
from packaging.specifiers import SpecifierSet

from pytest_cudalink.guardrails import rules
from pytest_cudalink.guardrails.errors import (
    CompatibilityCheckError,
    CompatibilityInsufficientMetadataError,
    DriverCtkCompatibilityError,
    error_of,
)
from pytest_cudalink.guardrails.items import Fact, Item, Verdict
from pytest_cudalink.guardrails.pipelines import Pipeline
from pytest_cudalink.guardrails.rules import KnownDriver, check_item, judge, judge_all
from pytest_cudalink.versions import CudaVersion


def item(name: str, version: str | None, kind: str = "dynamic-libs", *, of: str = "ctk", via: str = "site-packages"):
    release = CudaVersion.parse(version) if version else None
    return Item(kind, name, f"/{via}/{version}/{kind}/{name}", via, of, release, "as the test says")


def words(verdict: Verdict) -> tuple[str, str, str, str]:
    """Rule, message, repair, and what else would help."""
    return verdict.rule, verdict.message, verdict.fix, verdict.otherwise


def test_words_of_items_without_a_release() -> None:
    """What comes with the driver has none, what comes with neither is for pathfinder, an unknown one has a wheel."""
    cuda, nccl, nvrtc = item("cuda", None, of="driver"), item("nccl", None, of="other"), item("nvrtc", None)
    assert words(check_item(cuda)) == ("packaging", "cuda library: comes with the driver", "", "")
    assert words(check_item(nccl)) == (
        "packaging",
        "nccl library: comes with neither the CUDA toolkit nor the driver, so its CUDA release is not known",
        "",
        "look it up with cuda.pathfinder itself",
    )
    assert words(check_item(nvrtc)) == (
        "ctk-version-known",
        "the CUDA release of the nvrtc library is not known: as the test says",
        "pip install 'cuda-toolkit[nvrtc]'",
        "give a release: cuda-toolkit[...]==13.0.*",
    )
    for one in (cuda, nccl, nvrtc):
        assert check_item(one).items == (str(one),)
    known = item("nvrtc", "13.0")
    assert words(check_item(known)) == ("ctk-version-known", "the nvrtc library is of CUDA 13.0", "", "")


def test_words_of_a_constraint() -> None:
    """The verdict quotes what is asked for."""
    nvrtc, asked = item("nvrtc", "13.0"), SpecifierSet(">=13")
    nothing = ("ctk-constraint", "no release is required", "", "")
    assert words(rules.check_constraint(nvrtc, None)) == nothing
    assert words(rules.check_constraint(item("nvrtc", None), asked)) == nothing
    assert words(rules.check_constraint(nvrtc, asked)) == ("ctk-constraint", "CUDA 13.0 is among '>=13'", "", "")
    assert rules.check_constraint(nvrtc, SpecifierSet("<13")).rule == "ctk-constraint"


def test_words_of_a_pair() -> None:
    """Independent, of one release, or not of one."""
    nvrtc, header, cufft = item("nvrtc", "13.0"), item("nvrtc", "13.0", "headers"), item("cufft", "13.2")
    independent = "the nvrtc library and the cufft library are independent"
    assert words(rules.check_pair(nvrtc, cufft)) == ("same-ctk", independent, "", "")
    verdict = rules.check_pair(nvrtc, header)
    assert verdict.rule == "same-ctk"
    assert verdict.message == (
        "the nvrtc library and the nvrtc headers are both of CUDA 13.0 (nvrtc headers with their library)"
    )
    assert verdict.items == (str(nvrtc), str(header))
    assert rules.check_pair(nvrtc, item("nvrtc", "13.2", "headers")).rule == "same-ctk"


def test_words_about_the_driver() -> None:
    """Each way in which a driver runs an item, or does not."""
    nvrtc = item("nvrtc", "13.2")

    def answer(cuda: str | None, release: str | None = None, **others: object) -> tuple[str, str, str, str]:
        driver = KnownDriver(CudaVersion.parse(cuda) if cuda else None, release)
        verdict = rules.check_driver(nvrtc, driver, **others)
        assert verdict.items[0] == str(nvrtc)
        return words(verdict)

    verdict = rules.check_driver(item("cuda", None, of="driver"), KnownDriver(None))
    assert verdict.rule == "driver"
    assert verdict.message == "cuda library: needs nothing from the driver"
    assert answer("13.2")[:2] == ("driver", "a driver of CUDA 13.2 runs CUDA 13.2 (backward compatibility)")
    assert answer("13.0", "580.65.06")[:2] == (
        "driver",
        "a driver of CUDA 13.0, release 580.65.06 runs CUDA 13.2 (minor-version compatibility from branch 580 on)",
    )
    assert answer("12.9", assume_forward=True)[:2] == (
        "driver",
        "forward compatibility is assumed: the driver is of CUDA 12.9, older than major 13",
    )


def test_a_known_driver_says_where_its_facts_are_from() -> None:
    """As the default has it: they were given."""
    driver = KnownDriver(CudaVersion(13, 0), "580.65.06")
    assert (driver.cuda(), driver.release()) == (Fact(CudaVersion(13, 0), "as given"), Fact("580.65.06", "as given"))


@pytest.mark.parametrize("value", [None, SpecifierSet(), SpecifierSet(">=13,<14")])
def test_a_constraint_that_is_read_already_stays(value) -> None:
    """None is no constraint, and an empty one allows everything."""
    assert rules.parse_constraint(value) is value


@pytest.mark.parametrize("driver", [None, CudaVersion(13, 0)])
def test_an_unknown_release_is_judged_beside_a_known_one(driver) -> None:
    """Their pair is compatible; that the release is not known is a verdict for itself."""
    items = [item("nvrtc", None), item("nvrtc", "13.0", "headers")]
    statuses = {one.status for one in judge_all(items, driver=KnownDriver(driver)) if one.rule == "same-ctk"}
    assert statuses == {"compatible"}


@pytest.mark.parametrize(
    ("ctk", "cuda", "release", "message", "driver"),
    [
        (
            "13.2",
            None,
            None,
            "whether the driver runs CUDA 13.2 (nvrtc library) is not known: no CUDA version of the driver is known",
            "driver: unknown: no CUDA version of the driver is known",
        ),
        (
            "13.2",
            "13.0",
            None,
            "a driver of CUDA 13.0 runs CUDA 13.2 (nvrtc library) from branch 580 on, and the driver's release is not",
            "driver: CUDA 13.0: as given; release unknown: no release of the driver is known",
        ),
        (
            "13.2",
            "12.9",
            None,
            "the driver does not run CUDA 13.2 (nvrtc library): the driver is of CUDA 12.9, older than major 13",
            "driver: CUDA 12.9: as given",
        ),
        (
            "13.2",
            "13.0",
            "579.1",
            "the driver does not run CUDA 13.2 (nvrtc library): minor-version compatibility needs driver branch 580 ",
            "driver: CUDA 13.0: as given; release 579.1: as given",
        ),
        (
            "99.2",
            "99.0",
            None,
            "the driver does not run CUDA 99.2 (nvrtc library): for CUDA 99 no driver branch with minor-version ",
            "driver: CUDA 99.0: as given",
        ),
    ],
)
def test_words_about_a_driver_that_does_not_run_an_item(ctk, cuda, release, message, driver) -> None:
    """The fault, the item, and what is known of the driver."""
    nvrtc, known = item("nvrtc", ctk), KnownDriver(CudaVersion.parse(cuda) if cuda else None, release)
    verdict = rules.check_driver(nvrtc, known)
    assert verdict.rule == "driver"
    assert verdict.message.startswith(message)
    assert verdict.items == (str(nvrtc), driver)
    if cuda is None:
        assert verdict.otherwise == "install the NVIDIA driver; or give its version, driver_cuda_version=13000"


def test_the_advice_of_the_driver_rule_has_the_hint() -> None:
    """Where no wheel repairs it, PATH is for programs only; a hint of the caller comes last."""
    nvrtc, old = item("nvrtc", "12.9"), KnownDriver(CudaVersion(11, 4))
    driver = "install a driver for CUDA 12.9"
    assert (rules.check_driver(nvrtc, old).fix, rules.check_driver(nvrtc, old).otherwise) == ("", driver)
    assert judge(nvrtc, driver=old).otherwise == driver
    assert judge(nvrtc, driver=old, hint=", or wait").otherwise == f"{driver}, or wait"
    assert [one.otherwise for one in judge_all([nvrtc], driver=old) if one.rule == "driver"] == [driver]
    assert judge(nvrtc, driver=old, assume_forward=True).status == "compatible"


def test_the_verdict_of_what_holds_is_the_last_of_its_own() -> None:
    """That of the driver for a part of the toolkit, whatever pipelines hold as well; else that of its packaging."""
    new, pipeline = KnownDriver(CudaVersion(99, 0)), Pipeline("nvrtc", "nvJitLink", "ltoir")
    nvrtc, nvjitlink = item("nvrtc", "13.0"), item("nvJitLink", "13.2")
    assert judge(nvjitlink, [nvrtc], driver=new, pipelines=[pipeline]) == rules.check_driver(nvjitlink, new)
    assert judge(nvjitlink, driver=new, pipelines=[pipeline]).status == "compatible"
    assert judge(nvrtc, driver=new, pipelines=[pipeline]).status == "compatible"
    cuda = item("cuda", None, of="driver")
    assert judge(cuda, driver=new) == check_item(cuda)


def test_only_the_toolkits_items_are_paired() -> None:
    """Other libraries have headers too, of which nothing is known."""
    items = [item("nccl", None, of="other"), item("nccl", None, "headers", of="other")]
    assert {one.rule for one in judge_all(items, driver=KnownDriver(None))} == {"packaging"}


def test_pipelines_are_judged_in_one_order() -> None:
    """However they were given, so that a report does not change."""
    pipelines = [Pipeline("nvrtc", "nvJitLink", kind) for kind in ("ptx", "ltoir", "elf", "cubin")]
    items = [item("nvrtc", "13.0"), item("nvJitLink", "13.2")]
    verdicts = [
        one for one in judge_all(items, driver=KnownDriver(None), pipelines=pipelines) if one.rule == "pipeline"
    ]
    assert [one.message.split()[0] for one in verdicts] == ["cubin", "elf", "ltoir", "ptx"]


@pytest.mark.parametrize(
    ("status", "rule", "kind"),
    [
        ("insufficient_metadata", "driver", CompatibilityInsufficientMetadataError),
        ("incompatible", "driver", DriverCtkCompatibilityError),
        ("incompatible", "same-ctk", CompatibilityCheckError),
    ],
)
def test_error_of_a_verdict(status, rule, kind) -> None:
    """Its class says whose fault it is, its text is the verdict's, and another process gets all of it."""
    verdict = Verdict(status, rule, "why", "pip install x", ("a", "b"), "wait")
    error = pickle.loads(pickle.dumps(error_of(verdict)))
    text = f"why\n  found: a\n  found: b\n  rule:  {rule}\n  fix:   pip install x\n  or:    wait"
    assert (type(error), error.verdict, str(error)) == (kind, verdict, text)
