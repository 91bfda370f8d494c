"""The rules of the guard rails: boundary versions in tables, and what holds for any set of items."""

from collections import Counter
from dataclasses import replace
from types import SimpleNamespace

import pytest
from hypothesis import given
from hypothesis import strategies as st
from packaging.specifiers import SpecifierSet

from pytest_cudalink.base.finding import NO_DRIVER
from pytest_cudalink.compat.releases import DRIVER_BRANCH_FLOOR
from pytest_cudalink.guardrails.items import ALREADY_LOADED, Fact, Item, Verdict
from pytest_cudalink.guardrails.pipelines import ARTIFACT_KINDS, Pipeline
from pytest_cudalink.guardrails.rules import (
    KnownDriver,
    branch_of,
    check_constraint,
    check_driver,
    check_item,
    check_linked,
    check_pair,
    judge,
    judge_all,
    parse_constraint,
)
from pytest_cudalink.versions import CudaVersion

NEW = KnownDriver(CudaVersion(99, 0))


def item(name: str, version: str | None, kind: str = "dynamic-libs", *, by: str = "ctk", via: str = "site-packages"):
    release = CudaVersion.parse(version) if version else None
    return Item(kind, name, f"/{via}/{version}/{kind}/{name}", via, by, release, "as the test says")


class CountingDriver:
    """A driver that counts how often it is asked."""

    assume_forward, hint = False, ""

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


def line(verdict: Verdict) -> str:
    """A verdict as one line, but for the first item."""
    repair = f"{verdict.fix or 'no command'} / {verdict.otherwise or 'nothing else'}"
    return "; ".join([f"{verdict.status}: {verdict.message} => {repair}", *verdict.items[1:]])


REFUSED = "incompatible: the driver does not run CUDA"
NOTHING = "no command / nothing else"
TO_12_0 = "pip install 'cuda-toolkit[nvrtc]>=12.0,<12.1'"


@pytest.mark.parametrize(
    ("text", "known", "asked", "expected"),
    [
        ("nvrtc 12.9", "12.9", "c", "compatible: a driver of CUDA 12.9 runs CUDA 12.9 (backward compatibility) => no"),
        ("nvrtc 12.9", "13.0", "c", "compatible: "),
        ("nvrtc 12.9", "12.0 525.0", "cr", "compatible: "),
        ("nvrtc 12.9", "12.0 524.99.99", "cr", REFUSED),
        ("nvrtc 12.9", "12.0 520.30.01", "cr", (
            f"{REFUSED} 12.9 (nvrtc library): minor-version compatibility needs driver branch 525 or newer, the driver "
            f"is 520.30.01 => {TO_12_0} / install a driver for CUDA 12.9; driver: CUDA 12.0: as given; "
            "release 520.30.01: as given"
        )),
        ("nvrtc 12.9", "12.0", "cr", "insufficient_metadata: "),
        ("nvrtc 13.2", "13.0 580.65.06", "cr", (
            "compatible: a driver of CUDA 13.0, release 580.65.06 runs CUDA 13.2 * from branch 580 on) =>"
        )),
        ("nvrtc 13.2", "13.0 579.99", "cr", REFUSED),
        ("nvrtc 13.2", "13.0", "cr", (
            "insufficient_metadata: a driver of CUDA 13.0 runs CUDA 13.2 (nvrtc library) from branch 580 on, and the "
            "driver's release is not known: * 'cuda-toolkit[nvrtc]>=13.0,<13.1' / give the release, "
            "driver_release_version='580.65.06'; driver: CUDA 13.0: as given; release unknown: no release of the driver"
        )),
        ("nvrtc 11.8", "11.0 450.80.02", "cr", "compatible: "),
        ("nvrtc 11.8", "11.0 449.0", "cr", REFUSED),
        ("nvrtc 99.2", "99.0", "c", f"{REFUSED} 99.2 (nvrtc library): for CUDA 99 no driver branch with minor-version"),
        ("nvrtc 12.9", "", "c", (
            "insufficient_metadata: whether the driver runs CUDA 12.9 (nvrtc library) is not known: no CUDA version of "
            "the driver is known => no command / install the NVIDIA driver; or give its version, "
            "driver_cuda_version=13000; driver: unknown: no CUDA version of the driver is known"
        )),
        ("nvrtc 12.9", "11.4", "c", f"{REFUSED} 12.9 * => no command / install a driver for CUDA 12.9;"),
        ("nvrtc 13.0", "12.8", "c", (
            f"{REFUSED} 13.0 (nvrtc library): the driver is of CUDA 12.8, older than major 13 => pip install "
            "'cuda-toolkit[nvrtc]>=12.0,<12.9' / install a driver for CUDA 13.0; driver: CUDA 12.8: as given"
        )),
        ("nvcc 13.0 binaries", "12.8", "c", (
            "=> no command / put the bin folder of a CUDA 12.8 toolkit first on PATH, or install a driver for CUDA"
        )),
        ("nvcc 13.2 binaries", "13.0 570.0", "cr", "=> pip install 'cuda-toolkit[nvcc]>=13.0,<13.1' / install a"),
        ("nvdisasm 13.5 binaries", "12.8", "", "compatible: nvdisasm binary: needs nothing from the driver"),
        ("nvrtc 13.5 headers", "12.8", "", "compatible: nvrtc headers: needs nothing from the driver"),
        ("nvrtc ?", "11.0 450.80.02", "", "compatible: nvrtc library: needs nothing from the driver => no"),
        ("nccl 13.0 dynamic-libs other", "11.0 450.80.02", "", "compatible: nccl library: needs nothing from the"),
        ("cuda ? dynamic-libs driver", "11.0 450.80.02", "", "compatible: cuda library: needs nothing from the driver"),
    ],
)  # fmt: skip
def test_driver_rule(text, known, asked, expected) -> None:
    """Backward compatibility, or minor-version compatibility from a branch on; the release is asked for last."""
    name, version, kind, of = (*text.split(), *("dynamic-libs", "ctk")[len(text.split()) - 2 :])
    judged = item(name, None if version == "?" else version, kind, by=of)
    driver = CountingDriver(*(*known.split(), None, None)[:2])
    verdict = check_driver(judged, driver)
    assert all(part in line(verdict) for part in expected.split(" * ")), line(verdict)
    assert (verdict.rule, verdict.items[0]) == ("driver", str(judged))
    assert "".join(question[0] for question in driver.asked) == asked


def test_an_unknown_driver_is_one_cause() -> None:
    """Whatever it is compared with; that there is no driver is told from one that does not answer."""
    nvrtc, absent, silent = item("nvrtc", "12.9"), *(Fact(None, "x", absent=absent) for absent in (True, False))
    answers = [check_driver(nvrtc, SimpleNamespace(cuda=lambda fact=fact: fact)) for fact in (absent, silent)]
    answers.append(check_driver(nvrtc, KnownDriver(CudaVersion(12, 8))))
    assert [verdict.why for verdict in answers] == [NO_DRIVER, *(verdict.items[1] for verdict in answers[1:])]


def test_the_text_of_a_refusal() -> None:
    """It has every part; a hint of the caller ends the advice."""
    nvrtc, driver = item("nvrtc", "12.9"), KnownDriver(CudaVersion(12, 0), "520.30.01", "as nvidia-smi says")
    verdict = check_driver(nvrtc, replace(driver, hint=", or set X=1"))
    assert verdict.otherwise == "install a driver for CUDA 12.9, or set X=1"
    assert "as nvidia-smi says" in verdict.items[1]
    for part in (verdict.message, *verdict.items, "rule:  driver", f"fix:   {verdict.fix}", verdict.otherwise):
        assert part in verdict.text
    assert judge(nvrtc, driver=driver).otherwise == "install a driver for CUDA 12.9"
    assert judge(nvrtc, driver=replace(driver, hint=", or wait")).otherwise == "install a driver for CUDA 12.9, or wait"
    assert [v.otherwise[-4:] for v in judge_all([nvrtc], driver=driver) if v.rule == "driver"] == ["12.9"]


@pytest.mark.parametrize(("ctk", "cuda", "release"), [("13.0", "12.8", None), ("12.9", "12.0", "520.30.01")])
def test_forward_compatibility_relaxes_the_driver_rule_alone(ctk, cuda, release) -> None:
    """What is refused for the driver passes; a clash of toolkits and an unknown release do not."""
    forward = KnownDriver(CudaVersion.parse(cuda), release, assume_forward=True)
    verdict = check_driver(item("nvrtc", ctk), forward)
    assert line(verdict).startswith("compatible: forward compatibility is assumed: ")
    assert verdict.rule == "driver"
    assert ("the driver is of CUDA 12.8, older than major 13" in verdict.message) is (ctk == "13.0")
    assert judge(item("nvrtc", ctk), driver=forward).status == "compatible"
    clash = judge(item("nvrtc", ctk), [item("nvrtc", "11.0", "headers")], driver=forward)
    assert (clash.status, clash.rule) == ("incompatible", "same-ctk")
    unknown = check_driver(item("nvrtc", "12.9"), KnownDriver(CudaVersion(12, 0), assume_forward=True))
    assert unknown.status == "insufficient_metadata"


ARCHIVE = "static-libs"


@pytest.mark.parametrize(
    ("archive", "nvjitlink", "status"),
    [
        ("13.1", "13.0", "incompatible"), ("13.0", "13.0", "compatible"), ("13.0", "13.1", "compatible"),
        ("12.9", "13.5", "compatible"), ("12.9", "12.8", "incompatible"), ("13.0", "12.9", "incompatible"),
        (None, "13.0", "compatible"), ("13.1", None, "compatible"),
    ],
)  # fmt: skip
def test_an_archive_is_not_newer_than_its_linker(archive, nvjitlink, status) -> None:
    """The rule has a direction, in whichever order the two are looked up."""
    a, b = item("cudadevrt", archive, ARCHIVE), item("nvJitLink", nvjitlink)
    assert (check_linked(a, b).status, check_linked(b, a).status) == (status, status)
    if (archive, nvjitlink) == ("12.9", "13.5"):
        words = "the nvJitLink library of CUDA 13.5 links the cudadevrt static library of CUDA 12.9"
        assert check_linked(a, b).message == words
    if archive and nvjitlink:
        assert judge(a, [b], driver=NEW).status == judge(b, [a], driver=NEW).status == status
        statuses = [verdict.status for verdict in judge_all([a, b], driver=NEW) if verdict.rule == "linked"]
        assert statuses == [status]


def test_only_an_archive_of_the_toolkit_and_its_linker_are_linked() -> None:
    """Another pair has no such rule; nor has an archive from elsewhere."""
    others = [item("nvrtc", "13.0"), item("nvJitLink", "13.0", by="other"), item("cudart", "13.0", "headers")]
    archive = item("cudadevrt", "13.1", ARCHIVE)
    assert {check_linked(archive, other).status for other in others} == {"compatible"}
    apart = check_linked(archive, others[0])
    assert (apart.rule, apart.message) == (
        "linked",
        "the cudadevrt static library and the nvrtc library are independent",
    )
    assert check_linked(item("cudart", "13.1", ARCHIVE), item("nvJitLink", "13.0")).status == "compatible"
    assert not [verdict for verdict in judge_all([archive, *others[:1]], driver=NEW) if verdict.rule == "linked"]


def test_words_and_repair_of_a_newer_archive() -> None:
    """Both items, the reason and one command: a newer nvJitLink, or an older archive where that is loaded already."""
    archive, linker = item("cudadevrt", "13.1", ARCHIVE), item("nvJitLink", "13.0")
    verdict = judge(archive, [linker], driver=NEW)
    assert (verdict.status, verdict.rule) == ("incompatible", "linked")
    assert verdict.message == (
        "the cudadevrt static library is of CUDA 13.1, the nvJitLink library of CUDA 13.0, which takes it and must not "
        "be older: an older nvJitLink refuses the archive: NVJITLINK_ERROR_INVALID_INPUT (3), bad input: libcudadevrt.a"
    )
    assert verdict.items == (str(archive), str(linker))
    assert str(verdict.fix) == "pip install 'cuda-toolkit[nvjitlink]==13.1.*' 'nvidia-nvjitlink==13.1.*'"
    assert verdict.otherwise == ""
    loaded = item("nvJitLink", "13.0", via=ALREADY_LOADED)
    assert str(check_linked(loaded, archive).fix) == "pip install 'cuda-toolkit[cudart]==13.0.*'"
    headers = item("cudart", "13.0", "headers")
    assert str(check_linked(headers, item("nvrtc", "12.9")).fix) == "pip install 'cuda-toolkit[cudart]==12.9.*'"
    without_wheels = check_linked(item("cudadevrt", "12.7", ARCHIVE), item("nvJitLink", "12.6"))
    assert (str(without_wheels.fix), bool(without_wheels.otherwise)) == ("", True)


def test_the_reproducer() -> None:
    """A 13.2 NVRTC wheel with its 13.0 headers of a system toolkit: both items, witnesses, rule and command."""
    nvrtc = item("nvrtc", "13.2")
    headers = item("nvrtc", "13.0", "headers", via="system-ctk-root")
    verdict = judge(headers, [nvrtc], driver=NEW)
    assert (verdict.severity, verdict.status, verdict.rule) == ("error", "incompatible", "same-ctk")
    assert "nvrtc headers are of CUDA 13.0, the nvrtc library of CUDA 13.2" in verdict.message
    assert verdict.items == (str(headers), str(nvrtc))
    assert "found via system-ctk-root" in verdict.items[0]
    assert str(verdict.fix) == "pip install 'cuda-toolkit[nvrtc]==13.2.*'"


@pytest.mark.parametrize(
    ("constraint", "version", "fine"),
    [
        (">=13.2,<14", "13.2", True), (">=13.2,<14", "13.1", False), ("==12.*", "13.0", False),
        (">=13.2rc1", "13.2", True),
    ],
)  # fmt: skip
def test_constraint(constraint: str, version: str, fine: bool) -> None:
    """The constraint is a PEP 440 specifier over the CUDA release, as text or as a SpecifierSet."""
    for value in (constraint, SpecifierSet(constraint)):
        verdict = check_constraint(item("nvrtc", version), parse_constraint(value))
        status = "compatible" if fine else "incompatible"
        words = (
            f"CUDA {version} is among "
            if fine
            else f"the nvrtc library is of CUDA {version}, but ctk_version asks for "
        )
        assert (verdict.status, verdict.rule) == (status, "ctk-constraint")
        assert (verdict.message, len(verdict.items)) == (f"{words}'{SpecifierSet(constraint)}'", 1)


@pytest.mark.parametrize(
    ("constraint", "name", "command"),
    [
        ("==13.2.*", "nvJitLink", "pip install 'cuda-toolkit[nvjitlink]==13.2.*' 'nvidia-nvjitlink==13.2.*'"),
        ("<=13.2", "nvrtc", "pip install 'cuda-toolkit[nvrtc]==13.2.*'"),
        (">=12.6,<12.8", "nvrtc", "pip uninstall -y w && pip install 'cuda-toolkit[nvrtc]==12.6.*'"),
        (">=99", "nvrtc", "no known release of CUDA is among '>=99'"),
        ("<11", "nvrtc", "no known release of CUDA is among '<11'"),
        (">=12.6,<13", "nvcc", "uninstall w, and put the bin folder of a CUDA 12.9 toolkit first on PATH"),
    ],
)
def test_repair_of_a_constraint(constraint: str, name: str, command: str) -> None:
    """The command or the advice is for the newest release that is asked for and published, with the nvJitLink of it."""
    judged = replace(item(name, "13.5", "binaries" if name == "nvcc" else "dynamic-libs"), wheel="w")
    verdict = check_constraint(judged, SpecifierSet(constraint))
    assert (str(verdict.fix), verdict.otherwise) == ((command, "") if command.startswith("pip") else ("", command))


@pytest.mark.parametrize(
    ("value", "fault"),
    [
        *((value, "PEP 440") for value in ("13.2", "", " ", 13, 13.2, ("13.2",), b">=13")),
        *((value, r"' has a patch number.*MAJOR\.MINOR") for value in (">=13.2.1,<14", SpecifierSet(">=13,<13.2.2"))),
        ("==13.2.2", r"PEP 440 specifier ==13\.2\.\*$"),
        (">=13.2.1", r"PEP 440 specifier >=13\.2$"),
        ("~=13.2.1", r"PEP 440 specifier ~=13\.2$"),
        ("!=13.2.3", r"PEP 440 specifier !=13\.2$"),
        ("nine", r"^ctk_version = 'nine'.*, a SpecifierSet, or None$"),
        (">=99,<98", "^ctk_version = '<98,>=99': "),
    ],
)
def test_wrong_constraint(value, fault: str) -> None:
    """Anything else is a ValueError that says what is wanted; no item has a patch number, which would refuse all."""
    with pytest.raises(ValueError, match=fault):
        parse_constraint(value)


@pytest.mark.parametrize(
    "value", ["==13.2.*", ">=13.2.0,<14.0.0", "==13.0.*", SpecifierSet(), SpecifierSet(">=13,<14")]
)
def test_constraint_that_is_read(value) -> None:
    """A third number that is zero is no patch number; None is no constraint, and what is read already stays."""
    assert parse_constraint(value) == SpecifierSet(str(value))
    assert parse_constraint(None) is None
    assert parse_constraint(" 13.2 ", "--ctk") == SpecifierSet("==13.2.*")
    assert isinstance(value, str) or parse_constraint(value) is value


@pytest.mark.parametrize("text", ["580", "580.65.06.1", "v580.65", "580.", "", "580.65.06\n", "٥٨٠.65"])
def test_release_form(text: str) -> None:
    """A driver release is two or three numbers."""
    with pytest.raises(ValueError, match="is not a driver release"):
        branch_of(text)
    assert branch_of("580.65") == branch_of("580.159.04") == 580


@pytest.mark.parametrize(
    ("judged", "rule", "expected"),
    [
        (item("cuda", None, by="driver"), "packaging", f"compatible: cuda library: comes with the driver => {NOTHING}"),
        (item("nccl", None, by="other"), "packaging", (
            "insufficient_metadata: nccl library: comes with neither the CUDA toolkit nor the driver, so its CUDA "
            "release is not known => no command / look it up with cuda.pathfinder itself"
        )),
        (item("nvrtc", None), "ctk-version-known", (
            "insufficient_metadata: the CUDA release of the nvrtc library is not known: as the test says => pip "
            "install 'cuda-toolkit[nvrtc]' / give a release: cuda-toolkit[...]==13.0.*"
        )),
        (item("nvrtc", "13.0"), "ctk-version-known", f"compatible: the nvrtc library is of CUDA 13.0 => {NOTHING}"),
    ],
)  # fmt: skip
def test_item(judged: Item, rule: str, expected: str) -> None:
    """What the driver brings has no release, what comes with neither is for pathfinder, an unknown one has a wheel."""
    verdict, driver = check_item(judged), CountingDriver("13.0", None)
    assert (verdict.rule, verdict.items, line(verdict)) == (rule, (str(judged),), expected)
    if judged.version is None:
        assert (judge(judged, driver=driver), driver.asked) == (verdict, [])


def test_order_of_the_checks() -> None:
    """Constraint before pairs before driver before pipelines: the first fault is the answer."""
    nvrtc, headers = item("nvrtc", "13.2"), item("nvrtc", "13.0", "headers")
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
    assert rule(nvjitlink, driver=old, unknown_driver_passes=True) == "driver"


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
        (verdict,) = [v for v in judge_all(order, driver=KnownDriver(CudaVersion(13, 2))) if v.rule == "same-ctk"]
        assert f"=={keeps[1]}.*" in str(verdict.fix)


def test_a_pair_of_which_little_is_known_is_independent() -> None:
    """A pair with an unknown release, or with an item that is not the toolkit's, is not compared."""
    nvrtc, headers = item("nvrtc", "13.0"), item("nvrtc", "13.2", "headers")
    assert check_pair(nvrtc, headers).status == "incompatible"
    for a, b in (
        (replace(nvrtc, version=None), headers),
        (nvrtc, replace(headers, version=None)),
        (nvrtc, replace(headers, packaged_with="other")),
        (replace(nvrtc, packaged_with="driver"), headers),
        (nvrtc, item("cufft", "13.2")),
    ):
        verdict, expected = (
            check_pair(a, b),
            f"compatible: the {a.label} and the {b.label} are independent => {NOTHING}; {b}",
        )
        assert (verdict.rule, line(verdict)) == ("same-ctk", expected)
    same = check_pair(nvrtc, item("nvrtc", "13.0", "headers"))
    words = "the nvrtc library and the nvrtc headers are both of CUDA 13.0 (nvrtc headers with their library)"
    assert (same.rule, same.message, same.items[0]) == ("same-ctk", words, str(nvrtc))


def test_a_pair_without_wheels_has_advice() -> None:
    """No wheel is of CUDA 12.7: the advice takes the place of the command, and only there."""
    verdict = check_pair(item("nvrtc", "12.6", "headers"), item("nvrtc", "12.7"))
    assert (str(verdict.fix), verdict.otherwise[:26]) == ("", "use an installed CUDA 12.7")
    verdict = check_pair(item("nvrtc", "12.7", "headers"), item("nvrtc", "12.6"))
    assert (str(verdict.fix)[:11], verdict.otherwise) == ("pip install", "")


def test_which_pipelines_are_judged() -> None:
    """Only those with the item at one end, if both ends are there, and dynamic libraries; in one order."""
    clash = [item("nvrtc", "13.2"), item("nvJitLink", "13.0")]
    pipelines = [Pipeline("nvrtc", "nvJitLink", kind) for kind in ("ptx", "ltoir", "elf", "cubin")]
    assert judge(item("cufft", "13.0"), clash, driver=NEW, pipelines=pipelines).rule == "driver"
    assert judge(clash[0], [], driver=NEW, pipelines=pipelines).rule == "driver"
    assert judge(clash[0], clash[1:], driver=NEW, pipelines=pipelines).rule == "pipeline"
    for first, kinds in (("nvrtc", ["cubin", "elf", "ltoir", "ptx"]), ("nvrtc headers", [])):
        name, kind = (*first.split(), "dynamic-libs")[:2]
        items = [item(name, "13.0", kind), item("nvJitLink", "13.2")]
        verdicts = [v for v in judge_all(items, driver=KnownDriver(None), pipelines=pipelines) if v.rule == "pipeline"]
        assert [verdict.message.split()[0] for verdict in verdicts] == kinds


def test_judge_all_counts_each_once() -> None:
    """One verdict for each item and rule, each related pair and each pipeline; duplicates add none."""
    nvrtc, nvjitlink, headers = item("nvrtc", "13.0"), item("nvJitLink", "13.0"), item("nvrtc", "13.0", "headers")
    pipeline = Pipeline("nvrtc", "nvJitLink", "ltoir")
    verdicts = judge_all([nvrtc, nvjitlink, headers, nvrtc], driver=NEW, pipelines=[pipeline, pipeline])
    counted = Counter(verdict.rule for verdict in verdicts)
    assert counted == {"ctk-version-known": 3, "ctk-constraint": 3, "driver": 3, "same-ctk": 1, "pipeline": 1}
    (pair,) = [verdict for verdict in verdicts if verdict.rule == "same-ctk"]
    assert pair.message.startswith("the nvrtc library and the nvrtc headers are both of CUDA 13.0")
    of_driver = [verdict.evidence[0] for verdict in verdicts if verdict.rule == "driver"]
    assert of_driver == [nvjitlink, nvrtc, headers]  # by kind and name


def test_headers_make_others_depend_on_each_other() -> None:
    """Those of CCCL, if they come last; other items leave what was accepted alone."""
    nvcc, headers = item("nvcc", "13.2", "binaries"), item("cudart", "13.0", "headers")
    assert judge(headers, [nvcc], driver=NEW).status == "compatible"
    assert judge(item("cccl", "13.2", "headers"), [nvcc, headers], driver=NEW).rule == "same-ctk"
    clash = [item("nvrtc", "13.2"), item("nvrtc", "13.0", "headers")]
    assert judge(item("cufft", "13.0", "headers"), clash, driver=NEW).status == "compatible"


def test_the_verdict_of_what_holds_is_the_last_of_its_own() -> None:
    """That of the driver for a part of the toolkit, whatever pipelines hold as well; else that of its packaging."""
    pipeline = Pipeline("nvrtc", "nvJitLink", "ltoir")
    nvrtc, nvjitlink = item("nvrtc", "13.0"), item("nvJitLink", "13.2")
    assert judge(nvjitlink, [nvrtc], driver=NEW, pipelines=[pipeline]) == check_driver(nvjitlink, NEW)
    assert judge(nvjitlink, driver=NEW, pipelines=[pipeline]).status == "compatible"
    assert judge(nvrtc, driver=NEW, pipelines=[pipeline]).status == "compatible"
    cuda = item("cuda", None, by="driver")
    assert judge(cuda, driver=NEW) == check_item(cuda)


def test_only_the_toolkits_items_are_paired() -> None:
    """Other libraries have headers too, of which nothing is known."""
    items = [item("nccl", None, by="other"), item("nccl", None, "headers", by="other")]
    assert {verdict.rule for verdict in judge_all(items, driver=KnownDriver(None))} == {"packaging"}


ITEMS = st.builds(
    item,
    st.sampled_from(["nvrtc", "nvJitLink", "cudart", "cccl", "nvcc", "nvvm", "cublas", "cusolver"]),
    st.sampled_from([None, "12.8", "12.9", "13.0", "13.2"]),
    st.sampled_from(["dynamic-libs", "headers", "binaries"]),
    by=st.sampled_from(["ctk", "ctk", "ctk", "other", "driver"]),
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
    for item in items:
        if judge(item, remembered, **judged).status != "compatible":
            return False
        remembered.append(item)
    return True


@given(st.lists(ITEMS, min_size=1, max_size=5), DRIVERS, PIPELINES, CONSTRAINTS, st.data())
def test_order_of_look_ups_never_matters(items, driver, pipelines, constraint, data) -> None:
    """On one set of items every order ends the same, and as the judgement of the whole set does."""
    judged = {"driver": driver, "pipelines": pipelines, "constraint": constraint}
    shuffled = data.draw(st.permutations(items))
    whole = judge_all(items, **judged)
    assert [v.status for v in judge_all(shuffled, **judged)] == [v.status for v in whole]
    assert all_pass(items, **judged) == all_pass(shuffled, **judged) == all(v.status == "compatible" for v in whole)


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
