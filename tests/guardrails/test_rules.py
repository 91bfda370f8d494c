"""The rules of the guard rails: boundary versions in tables, and what holds for any set of items."""

from __future__ import annotations

import re
from collections import Counter
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st
from packaging.specifiers import SpecifierSet

from pytest_cudalink.compat.releases import DRIVER_BRANCH_FLOOR
from pytest_cudalink.guardrails.items import ALREADY_LOADED, Fact, Item
from pytest_cudalink.guardrails.pipelines import ARTIFACT_KINDS, Pipeline
from pytest_cudalink.guardrails.relations import packaged_with, shared_groups
from pytest_cudalink.guardrails.rules import (
    KnownDriver,
    branch_of,
    check_constraint,
    check_driver,
    check_linked,
    check_pair,
    judge,
    judge_all,
    parse_constraint,
)
from pytest_cudalink.versions import CudaVersion

NEW = KnownDriver(CudaVersion(99, 0))


def item(name: str, version: str | None, kind: str = "dynamic-libs", *, of: str = "ctk", via: str = "site-packages"):
    release = CudaVersion.parse(version) if version else None
    return Item(kind, name, f"/{via}/{version}/{kind}/{name}", via, of, release, "as the test says")


class Asked:
    """A driver that counts how often it is asked."""

    def __init__(self, cuda: str | None, release: str | None) -> None:
        self.known = KnownDriver(CudaVersion.parse(cuda) if cuda else None, release)
        self.asked: list[str] = []

    def cuda(self) -> Fact:
        self.asked.append("cuda")
        return self.known.cuda()

    def release(self) -> Fact:
        self.asked.append("release")
        return self.known.release()


# -- single rules


@pytest.mark.parametrize(
    ("ctk", "cuda", "release", "status", "asked"),
    [
        ("12.9", "12.9", None, "compatible", ["cuda"]),
        ("12.9", "13.0", None, "compatible", ["cuda"]),
        ("12.9", "12.0", "525.60.13", "compatible", ["cuda", "release"]),
        ("12.9", "12.0", "525.0", "compatible", ["cuda", "release"]),
        ("12.9", "12.0", "524.99.99", "incompatible", ["cuda", "release"]),
        ("12.9", "12.0", "520.30.01", "incompatible", ["cuda", "release"]),
        ("12.9", "12.0", None, "insufficient_metadata", ["cuda", "release"]),
        ("13.0", "12.8", "580.65.06", "incompatible", ["cuda"]),
        ("13.2", "13.0", "580.65.06", "compatible", ["cuda", "release"]),
        ("13.2", "13.0", "579.99", "incompatible", ["cuda", "release"]),
        ("11.8", "11.0", "450.80.02", "compatible", ["cuda", "release"]),
        ("11.8", "11.0", "449.0", "incompatible", ["cuda", "release"]),
        ("14.1", "14.0", "700.1", "incompatible", ["cuda"]),
        ("14.0", "14.0", None, "compatible", ["cuda"]),
        ("12.9", None, "580.65.06", "insufficient_metadata", ["cuda"]),
    ],
)
def test_driver_rule(ctk, cuda, release, status, asked) -> None:
    """Backward compatibility, or minor-version compatibility from a branch on; the release is asked for last."""
    driver = Asked(cuda, release)

    verdict = check_driver(item("nvrtc", ctk), driver)

    assert (verdict.status, driver.asked) == (status, asked)
    assert verdict.rule == "driver"


def test_driver_rule_words() -> None:
    """A refusal names both versions with witnesses, the branch, and a toolkit that the driver runs."""
    driver = KnownDriver(CudaVersion(12, 0), "520.30.01", "as nvidia-smi says")
    verdict = check_driver(item("nvrtc", "12.9"), driver, hint=", or set X=1")
    assert "needs driver branch 525 or newer, the driver is 520.30.01" in verdict.message
    assert verdict.fix == "pip install 'cuda-toolkit[nvrtc]>=12.0,<12.1'"
    assert verdict.otherwise == "install a driver for CUDA 12.9, or set X=1"
    assert "as nvidia-smi says" in verdict.items[1]
    assert "as the test says" in verdict.items[0]
    for part in (verdict.message, *verdict.items, "rule:  driver", f"fix:   {verdict.fix}", verdict.otherwise):
        assert part in verdict.text


@pytest.mark.parametrize(("ctk", "cuda", "release"), [("13.0", "12.8", None), ("12.9", "12.0", "520.30.01")])
def test_forward_compatibility_relaxes_the_driver_rule_alone(ctk, cuda, release) -> None:
    """What is refused for the driver passes; a clash of toolkits and an unknown release do not."""
    driver = KnownDriver(CudaVersion.parse(cuda), release)
    assert check_driver(item("nvrtc", ctk), driver, assume_forward=True).status == "compatible"
    clash = judge(item("nvrtc", ctk), [item("cudart", "11.0", "headers")], driver=driver, assume_forward=True)
    assert (clash.status, clash.rule) == ("incompatible", "same-ctk")
    unknown = check_driver(item("nvrtc", "12.9"), KnownDriver(CudaVersion(12, 0)), assume_forward=True)
    assert unknown.status == "insufficient_metadata"


ARCHIVE = "static-libs"


@pytest.mark.parametrize(
    ("archive", "nvjitlink", "status"),
    [
        ("13.1", "13.0", "incompatible"),
        ("13.0", "13.0", "compatible"),
        ("13.0", "13.1", "compatible"),
        ("12.9", "13.5", "compatible"),
        ("12.9", "12.8", "incompatible"),
        ("13.0", "12.9", "incompatible"),
        (None, "13.0", "compatible"),
        ("13.1", None, "compatible"),
    ],
)
def test_an_archive_is_not_newer_than_its_linker(archive, nvjitlink, status) -> None:
    """The rule has a direction, in whichever order the two are looked up."""
    a, b = item("cudadevrt", archive, ARCHIVE), item("nvJitLink", nvjitlink)
    assert (check_linked(a, b).status, check_linked(b, a).status) == (status, status)
    if (archive, nvjitlink) == ("12.9", "13.5"):
        words = "the nvJitLink library of CUDA 13.5 links the cudadevrt static library of CUDA 12.9"
        assert check_linked(a, b).message == words
    if archive and nvjitlink:
        assert judge(a, [b], driver=NEW).status == judge(b, [a], driver=NEW).status == status
        found = [one.status for one in judge_all([a, b], driver=NEW) if one.rule == "linked"]
        assert found == [status]


def test_only_an_archive_of_the_toolkit_and_its_linker_are_linked() -> None:
    """Another pair has no such rule; nor has an archive from elsewhere."""
    others = [item("nvrtc", "13.0"), item("nvJitLink", "13.0", of="other"), item("cudart", "13.0", "headers")]
    archive = item("cudadevrt", "13.1", ARCHIVE)
    assert {check_linked(archive, other).status for other in others} == {"compatible"}
    apart = check_linked(archive, others[0])
    assert (apart.rule, apart.message) == (
        "linked",
        "the cudadevrt static library and the nvrtc library are independent",
    )
    assert check_linked(item("cudart", "13.1", ARCHIVE), item("nvJitLink", "13.0")).status == "compatible"
    assert not [one for one in judge_all([archive, *others[:1]], driver=NEW) if one.rule == "linked"]


def test_words_and_repair_of_a_newer_archive() -> None:
    """Both items, the reason and one command: a newer nvJitLink, or an older archive where that is loaded already."""
    archive, linker = item("cudadevrt", "13.1", ARCHIVE), item("nvJitLink", "13.0")
    verdict = judge(archive, [linker], driver=NEW)
    assert (verdict.status, verdict.rule) == ("incompatible", "linked")
    assert verdict.message == (
        "the cudadevrt static library is of CUDA 13.1, the nvJitLink library of CUDA 13.0, which links it and must not "
        "be older: an older nvJitLink refuses the archive: NVJITLINK_ERROR_INVALID_INPUT (3), bad input: libcudadevrt.a"
    )
    assert verdict.items == (str(archive), str(linker))
    assert verdict.fix == "pip install 'cuda-toolkit[nvjitlink]==13.1.*' 'nvidia-nvjitlink==13.1.*'"
    assert verdict.otherwise == ""
    loaded = item("nvJitLink", "13.0", via=ALREADY_LOADED)
    assert check_linked(loaded, archive).fix == "pip install 'cuda-toolkit[cudart]==13.0.*'"
    without_wheels = check_linked(item("cudadevrt", "12.7", ARCHIVE), item("nvJitLink", "12.6"))
    assert (without_wheels.fix, bool(without_wheels.otherwise)) == ("", True)


def test_the_reproducer() -> None:
    """A 13.2 NVRTC wheel with 13.0 headers of a system toolkit: both items, witnesses, rule and command."""
    nvrtc = item("nvrtc", "13.2")
    headers = item("cudart", "13.0", "headers", via="system-ctk-root")
    verdict = judge(headers, [nvrtc], driver=NEW)
    assert (verdict.status, verdict.rule) == ("incompatible", "same-ctk")
    assert "cudart headers are of CUDA 13.0, the nvrtc library of CUDA 13.2" in verdict.message
    assert verdict.items == (str(headers), str(nvrtc))
    assert "found via system-ctk-root" in verdict.items[0]
    assert verdict.fix == "pip install 'cuda-toolkit[cudart,nvrtc]==13.2.*'"


def test_two_copies_have_a_reason_of_their_own() -> None:
    """Two releases of one library are refused because there are two, not because of headers."""
    verdict = check_pair(item("nvJitLink", "13.0"), item("nvJitLink", "12.5", via=ALREADY_LOADED))
    assert verdict.status == "incompatible"
    assert "one nvJitLink library only" in verdict.message
    assert "header" not in verdict.message


@pytest.mark.parametrize(
    ("constraint", "version", "fine"),
    [
        (">=13.2,<14", "13.2", True),
        (">=13.2,<14", "13.1", False),
        (">=13.2,<14", "14.0", False),
        ("==12.*", "12.9", True),
        ("==12.*", "13.0", False),
        ("~=13.1", "13.5", True),
        ("!=13.1", "13.1", False),
    ],
)
def test_constraint(constraint: str, version: str, fine: bool) -> None:
    """The constraint is a PEP 440 specifier over the CUDA release, as text or as a SpecifierSet."""
    for value in (constraint, SpecifierSet(constraint)):
        verdict = check_constraint(item("nvrtc", version), parse_constraint(value))
        assert verdict.status == ("compatible" if fine else "incompatible")
        assert fine or (verdict.rule == "ctk-constraint" and f"'{SpecifierSet(constraint)}'" in verdict.message)


@pytest.mark.parametrize(
    ("constraint", "name", "command"),
    [
        ("==13.2.*", "nvJitLink", "pip install 'cuda-toolkit[nvjitlink]==13.2.*' 'nvidia-nvjitlink==13.2.*'"),
        ("<=13.2", "nvrtc", "pip install 'cuda-toolkit[nvrtc]==13.2.*'"),
        (">=12.6,<12.8", "nvrtc", "pip uninstall -y w && pip install 'cuda-toolkit[nvrtc]==12.6.*'"),
        (">=99", "nvrtc", ""),
        ("<11", "nvrtc", ""),
    ],
)
def test_repair_of_a_constraint(constraint: str, name: str, command: str) -> None:
    """The command installs the newest release that is asked for and published, with the nvJitLink of it."""
    found = replace(item(name, "13.5"), wheel="w")
    verdict = check_constraint(found, SpecifierSet(constraint))
    assert verdict.fix == command
    assert bool(verdict.otherwise) == (not command)


def test_advice_for_a_constraint() -> None:
    """A program that no wheel brings: the advice is the newest release that the constraint admits."""
    verdict = check_constraint(item("nvcc", "13.0", "binaries"), SpecifierSet(">=12.6,<13"))
    assert (verdict.fix, verdict.otherwise) == ("", "put the bin folder of a CUDA 12.9 toolkit first on PATH")
    verdict = check_constraint(item("nvrtc", "13.0"), SpecifierSet(">=99"))
    assert (verdict.fix, verdict.otherwise) == ("", "no known release of CUDA is among '>=99'")


@pytest.mark.parametrize("value", ["==13.2.2", "~=13.2.1", ">=13.2.1,<14", SpecifierSet(">=13,<13.2.2")])
def test_a_patch_number_in_a_constraint(value) -> None:
    """No item has one: a bound with it would refuse everything, and is a ValueError that says how to write it."""
    with pytest.raises(ValueError, match=r"has a patch number.*MAJOR\.MINOR"):
        parse_constraint(value)


@pytest.mark.parametrize("value", ["==13.2.*", ">=13.2.0,<14.0.0", "==13.0.*"])
def test_zero_is_no_patch_number(value: str) -> None:
    """A third number that is zero changes nothing."""
    assert parse_constraint(value) == SpecifierSet(value)


@pytest.mark.parametrize("value", ["13.2", "", " ", 13, 13.2, ("13.2",), b">=13"])
def test_wrong_constraint(value) -> None:
    """Anything else is a ValueError that says what is wanted."""
    with pytest.raises(ValueError, match="PEP 440"):
        parse_constraint(value)


@pytest.mark.parametrize("text", ["580", "580.65.06.1", "v580.65", "580.", "", "580.65.06\n", "٥٨٠.65"])
def test_release_form(text: str) -> None:
    """A driver release is two or three numbers."""
    with pytest.raises(ValueError, match="is not a driver release"):
        branch_of(text)
    assert branch_of("580.65") == branch_of("580.159.04") == 580


def test_packaging() -> None:
    """The driver's own libraries pass; what comes with neither is insufficient; so is an unknown release."""
    names = {"nvrtc", "cudart"}
    assert packaged_with("dynamic-libs", "cuda", names) == "driver"
    assert packaged_with("dynamic-libs", "nvml", names) == "driver"
    assert packaged_with("dynamic-libs", "nvrtc", names) == "ctk"
    assert packaged_with("dynamic-libs", "nccl", names) == "other"
    assert packaged_with("headers", "cutensor", names) == "other"
    for name in ("nsys", "nsight-sys", "ncu", "nsight-compute"):
        assert packaged_with("binaries", name, names) == "other"
    assert packaged_with("binaries", "nvcc", names) == "ctk"
    assert packaged_with("bitcode-libs", "nvshmem_device", names) == "other"
    assert packaged_with("bitcode-libs", "device", names) == "ctk"

    driver = Asked("13.0", None)
    assert judge(item("cuda", None, of="driver"), driver=driver).status == "compatible"
    other = judge(item("nccl", None, of="other"), driver=driver)
    assert (other.status, other.rule) == ("insufficient_metadata", "packaging")
    unknown = judge(item("nvrtc", None), driver=driver)
    assert (unknown.status, unknown.rule) == ("insufficient_metadata", "ctk-version-known")
    assert driver.asked == []


@pytest.mark.parametrize("at", [0, 1, 2])
def test_every_remembered_item_counts(at: int) -> None:
    """An item that clashes with any of the remembered ones is refused, wherever that one stands."""
    remembered = [item("nvJitLink", "13.0"), item("cufft", "13.0")]
    remembered.insert(at, item("cudart", "13.0", "headers"))
    verdict = judge(item("nvrtc", "13.2"), remembered, driver=NEW)
    assert (verdict.status, verdict.rule) == ("incompatible", "same-ctk")
    assert "cudart headers" in verdict.message


def test_order_of_the_checks() -> None:
    """Constraint before pairs before driver before pipelines: the first fault is the answer."""
    nvrtc, headers = item("nvrtc", "13.2"), item("cudart", "13.0", "headers")
    old = KnownDriver(CudaVersion(12, 0), "525.60.13")
    pipelines = [Pipeline("nvrtc", "nvJitLink", "ltoir")]

    def rule(*remembered: Item, driver=NEW, **others) -> str:
        return judge(nvrtc, remembered, driver=driver, pipelines=pipelines, **others).rule

    nvjitlink = item("nvJitLink", "13.0")
    assert rule(headers, nvjitlink, driver=old, constraint=SpecifierSet("<13")) == "ctk-constraint"
    assert rule(headers, nvjitlink, driver=old) == "same-ctk"
    assert rule(nvjitlink, driver=old) == "driver"
    assert rule(nvjitlink) == "pipeline"
    unknown = KnownDriver(None)
    assert rule(nvjitlink, driver=unknown) == "driver"
    assert rule(nvjitlink, driver=unknown, unknown_driver_passes=True) == "pipeline"


def test_known_driver_says_where_its_facts_are_from() -> None:
    """A known fact has the given witness, an unknown one the reason."""
    known = KnownDriver(CudaVersion(13, 0), "580.65.06", "as nvidia-smi says")
    assert known.cuda() == Fact(CudaVersion(13, 0), "as nvidia-smi says")
    assert known.release() == Fact("580.65.06", "as nvidia-smi says")
    unknown = KnownDriver(None, None, "as nvidia-smi says")
    assert unknown.cuda() == Fact(None, "no CUDA version of the driver is known")
    assert unknown.release() == Fact(None, "no release of the driver is known")


@pytest.mark.parametrize(
    ("value", "written"),
    [("==13.2.2", "==13.2.*"), (">=13.2.1", ">=13.2"), ("~=13.2.1", "~=13.2"), ("!=13.2.3", "!=13.2")],
)
def test_a_patch_number_has_a_replacement(value: str, written: str) -> None:
    """The error names the specifier to write instead."""
    with pytest.raises(ValueError, match=rf"PEP 440 specifier {re.escape(written)}$"):
        parse_constraint(value)


@pytest.mark.parametrize(
    ("keeps", "other"),
    [
        # what the driver runs, even if the other is loaded
        (("nvrtc", "13.0", "system"), ("nvrtc", "13.5", ALREADY_LOADED)),
        # what is loaded, even if the other is a wheel
        (("nvrtc", "13.0", ALREADY_LOADED), ("nvrtc", "13.2", "site-packages")),
        # the only wheel, even if the other is newer
        (("nvrtc", "13.0", "site-packages"), ("nvrtc", "13.2", "system")),
        (("nvrtc", "13.2", "system"), ("nvrtc", "13.0", "CUDA_PATH")),
        (("nvrtc", "13.2", "site-packages"), ("nvrtc", "13.0", "site-packages")),
    ],
)
def test_which_release_a_pair_keeps(keeps, other) -> None:
    """The repair goes to the release that the driver runs, then to what is loaded, a wheel, and the newer one."""
    items = [item(name, version, via=via) for name, version, via in (keeps, other)]
    for order in (items, items[::-1]):
        (verdict,) = [one for one in judge_all(order, driver=KnownDriver(CudaVersion(13, 2))) if one.rule == "same-ctk"]
        assert f"=={keeps[1]}.*" in verdict.fix


def test_a_release_that_the_driver_runs_exactly_is_kept() -> None:
    """The driver's own release counts as one that it runs."""
    pair = [item("nvrtc", "13.2", via="system"), item("nvrtc", "13.0", via="CUDA_PATH")]
    (verdict,) = [one for one in judge_all(pair, driver=KnownDriver(CudaVersion(13, 2))) if one.rule == "same-ctk"]
    assert "==13.2.*" in verdict.fix


def test_a_pair_of_which_little_is_known_is_independent() -> None:
    """A pair with an unknown release, or with an item that is not the toolkit's, is not compared."""
    nvrtc, headers = item("nvrtc", "13.0"), item("cudart", "13.2", "headers")
    assert check_pair(nvrtc, headers).status == "incompatible"
    for a, b in (
        (replace(nvrtc, version=None), headers),
        (nvrtc, replace(headers, version=None)),
        (nvrtc, replace(headers, packaged_with="other")),
        (replace(nvrtc, packaged_with="driver"), headers),
    ):
        verdict = check_pair(a, b)
        assert (verdict.status, "independent" in verdict.message) == ("compatible", True)


def test_a_pair_without_wheels_has_advice() -> None:
    """No wheel is of CUDA 12.7: the advice takes the place of the command, and only there."""
    verdict = check_pair(item("cudart", "12.6", "headers"), item("nvrtc", "12.7"))
    assert (verdict.fix, verdict.otherwise[:26]) == ("", "use an installed CUDA 12.7")
    verdict = check_pair(item("cudart", "12.7", "headers"), item("nvrtc", "12.6"))
    assert (verdict.fix[:11], verdict.otherwise) == ("pip install", "")


def test_the_driver_rule_asks_nothing_for_other_items() -> None:
    """An item of unknown release, or that is not the toolkit's, passes without a question."""
    driver = Asked("11.0", "450.80.02")
    for one in (item("nvrtc", None), item("nvrtc", "13.0", of="other"), item("cuda", None, of="driver")):
        assert check_driver(one, driver).status == "compatible"
    assert driver.asked == []


@pytest.mark.parametrize(
    ("one", "fix", "otherwise"),
    [
        (item("nvrtc", "13.0"), "pip install 'cuda-toolkit[nvrtc]>=12.0,<12.9'", "install a driver for CUDA 13.0"),
        (
            item("nvcc", "13.0", "binaries"),
            "",
            "put the bin folder of a CUDA 12.8 toolkit first on PATH, or install a driver for CUDA 13.0",
        ),
    ],
)
def test_advice_of_the_driver_rule(one: Item, fix: str, otherwise: str) -> None:
    """A library has a command; a program that no wheel brings has advice."""
    verdict = check_driver(one, KnownDriver(CudaVersion(12, 8)))
    assert (verdict.fix, verdict.otherwise) == (fix, otherwise)


def test_a_program_that_a_wheel_brings_has_a_command() -> None:
    """From CUDA 13 on: no advice about PATH stands next to it."""
    verdict = check_driver(item("nvcc", "13.2", "binaries"), KnownDriver(CudaVersion(13, 0), "570.0"))
    assert verdict.fix == "pip install 'cuda-toolkit[nvcc]>=13.0,<13.1'"
    assert verdict.otherwise == "install a driver for CUDA 13.2"


def test_an_unknown_release_of_the_driver_has_a_command_too() -> None:
    """Where the release decides and is unknown, an older toolkit helps, or giving the release."""
    verdict = check_driver(item("nvrtc", "13.2"), KnownDriver(CudaVersion(13, 0)))
    assert verdict.fix == "pip install 'cuda-toolkit[nvrtc]>=13.0,<13.1'"
    assert verdict.otherwise == "give the release, driver_release_version='580.65.06'"
    assert "from branch 580 on" in verdict.message


def test_an_item_that_was_remembered_itself_is_not_compared() -> None:
    """Looked up again, it does not clash with itself; a second one of another release does."""
    nvrtc = item("nvrtc", "13.0")
    assert judge(nvrtc, [nvrtc], driver=NEW).rule == "driver"
    assert judge(nvrtc, [item("nvrtc", "13.2")], driver=NEW).rule == "same-ctk"


def test_pipelines_of_other_libraries_are_left_alone() -> None:
    """Only pipelines with the item at one end are judged, and only if both ends are there."""
    clash = [item("nvrtc", "13.2"), item("nvJitLink", "13.0")]
    pipelines = [Pipeline("nvrtc", "nvJitLink", "ltoir")]
    assert judge(item("cufft", "13.0"), clash, driver=NEW, pipelines=pipelines).rule == "driver"
    assert judge(clash[0], [], driver=NEW, pipelines=pipelines).rule == "driver"
    assert judge(clash[0], clash[1:], driver=NEW, pipelines=pipelines).rule == "pipeline"


@pytest.mark.parametrize(("passes", "rule"), [(False, "driver"), (True, "pipeline")])
def test_pipelines_after_an_insufficient_driver(passes: bool, rule: str) -> None:
    """An unknown driver alone lets pipelines be judged, and only where the caller says so."""
    nvrtc, nvjitlink = item("nvrtc", "13.2"), item("nvJitLink", "13.0")
    judged = {"pipelines": [Pipeline("nvrtc", "nvJitLink", "ltoir")], "unknown_driver_passes": passes}
    assert judge(nvrtc, [nvjitlink], driver=KnownDriver(None), **judged).rule == rule
    old = KnownDriver(CudaVersion(12, 0))
    assert judge(nvrtc, [nvjitlink], driver=old, **judged).rule == "driver"
    other = item("nvrtc", None)
    assert judge(other, [nvjitlink], driver=KnownDriver(None), **judged).rule == "ctk-version-known"


def test_judge_all_counts_each_once() -> None:
    """One verdict for each item and rule, each related pair and each pipeline; duplicates add none."""
    nvrtc, nvjitlink, headers = item("nvrtc", "13.0"), item("nvJitLink", "13.0"), item("cudart", "13.0", "headers")
    pipeline = Pipeline("nvrtc", "nvJitLink", "ltoir")
    verdicts = judge_all([nvrtc, nvjitlink, headers, nvrtc], driver=NEW, pipelines=[pipeline, pipeline])
    counted = Counter(verdict.rule for verdict in verdicts)
    assert counted == {"ctk-version-known": 3, "ctk-constraint": 3, "driver": 3, "same-ctk": 1, "pipeline": 1}
    (pair,) = [verdict for verdict in verdicts if verdict.rule == "same-ctk"]
    assert pair.message.startswith("the nvrtc library and the cudart headers are both of CUDA 13.0")


def test_pipelines_are_of_dynamic_libraries() -> None:
    """Headers with the name of a library are no end of a pipeline."""
    pipelines = [Pipeline("nvvm", "nvJitLink", "ptx")]
    items = [item("nvvm", "13.2", "headers"), item("nvJitLink", "13.0")]
    assert not [one for one in judge_all(items, driver=NEW, pipelines=pipelines) if one.rule == "pipeline"]


def test_a_pre_release_in_a_constraint() -> None:
    """A release counts for a specifier that names a pre-release of it."""
    assert check_constraint(item("nvrtc", "13.2"), parse_constraint(">=13.2rc1")).status == "compatible"


# -- the algebra

ITEMS = st.builds(
    item,
    st.sampled_from(["nvrtc", "nvJitLink", "cudart", "cccl", "nvcc", "nvvm", "cublas", "cusolver"]),
    st.sampled_from([None, "12.8", "12.9", "13.0", "13.2"]),
    st.sampled_from(["dynamic-libs", "headers", "binaries"]),
    of=st.sampled_from(["ctk", "ctk", "ctk", "other", "driver"]),
)
DRIVERS = st.builds(
    KnownDriver,
    st.sampled_from([None, *map(CudaVersion.parse, ("12.0", "12.9", "13.0", "13.2", "14.0"))]),
    st.sampled_from([None, "520.30.01", "525.60.13", "580.65.06"]),
)
PIPELINES = st.lists(
    st.builds(Pipeline, st.sampled_from(["nvrtc", "nvvm"]), st.just("nvJitLink"), st.sampled_from(ARTIFACT_KINDS)),
    max_size=2,
)
CONSTRAINTS = st.sampled_from([None, *map(SpecifierSet, (">=12.9", "<13.2", ">=13,<14", "!=13.0", "==13.*"))])


def all_pass(items, **judged) -> bool:
    """Look one after another up, remembering what passes; whether all did."""
    remembered: list[Item] = []
    for one in items:
        if judge(one, remembered, **judged).status != "compatible":
            return False
        remembered.append(one)
    return True


@given(st.lists(ITEMS, min_size=1, max_size=5), DRIVERS, PIPELINES, CONSTRAINTS, st.data())
def test_order_of_look_ups_never_matters(items, driver, pipelines, constraint, data) -> None:
    """On one set of items every order ends the same, and as the judgement of the whole set does."""
    judged = {"driver": driver, "pipelines": pipelines, "constraint": constraint}
    shuffled = data.draw(st.permutations(items))
    whole = judge_all(items, **judged)
    assert [v.status for v in judge_all(shuffled, **judged)] == [v.status for v in whole]
    assert all_pass(items, **judged) == all_pass(shuffled, **judged) == all(v.status == "compatible" for v in whole)


@given(ITEMS, st.lists(ITEMS, max_size=4), DRIVERS, PIPELINES)
def test_looking_up_again_changes_nothing(one, remembered, driver, pipelines) -> None:
    """An item that passed passes again together with itself, with the same verdict."""
    judged = {"driver": driver, "pipelines": pipelines}
    first = judge(one, remembered, **judged)
    assert judge(one, [*remembered, one], **judged) == first
    twice = [v.status for v in judge_all([*remembered, one, one], **judged)]
    assert twice == [v.status for v in judge_all([*remembered, one], **judged)]


@given(ITEMS, st.lists(ITEMS, max_size=4), DRIVERS, CONSTRAINTS, CONSTRAINTS)
def test_stricter_never_accepts_more(one, remembered, driver, loose, added) -> None:
    """A second condition, one more remembered item, or a missing assumption only ever refuses."""
    strict = (loose or SpecifierSet()) & (added or SpecifierSet())
    if judge(one, remembered, driver=driver, constraint=strict).status == "compatible":
        assert judge(one, remembered, driver=driver, constraint=loose).status == "compatible"
        assert judge(one, remembered[:-1], driver=driver, constraint=strict).status == "compatible"
        assert judge(one, remembered, driver=driver, constraint=strict, assume_forward=True).status == "compatible"


@given(ITEMS, ITEMS)
def test_relations_are_symmetric(a, b) -> None:
    """A pair is judged alike from both sides."""
    assert check_pair(a, b).status == check_pair(b, a).status
    assert set(shared_groups(a, b)) == set(shared_groups(b, a))


@given(st.sampled_from(sorted(DRIVER_BRANCH_FLOOR)), st.integers(0, 9), st.integers(0, 9), st.integers(400, 700))
def test_a_newer_driver_is_never_worse(major: int, ctk_minor: int, minor: int, branch: int) -> None:
    """Raising the driver's version or branch never turns an accepted toolkit into a refused one."""
    order = {"incompatible": 0, "insufficient_metadata": 0, "compatible": 1}
    thing = item("nvrtc", f"{major}.{ctk_minor}")

    def status(version: tuple[int, int], release: int) -> int:
        known = KnownDriver(CudaVersion(*version), f"{release}.1")
        return order[check_driver(thing, known).status]

    assert status((major, minor), branch) <= status((major, minor + 1), branch)
    assert status((major, minor), branch) <= status((major, minor), branch + 1)
    assert status((major, minor), branch) <= status((major + 1, 0), branch)
