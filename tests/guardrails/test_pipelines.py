"""What one library makes and another one reads."""

from types import SimpleNamespace

import pytest

from pytest_cudalink import probes
from pytest_cudalink.guardrails import attribution
from pytest_cudalink.guardrails.items import ALREADY_LOADED, CompatibilityCheckError, Item, Verdict
from pytest_cudalink.guardrails.pipelines import ARTIFACT_KINDS, Pipeline, check_pipeline
from pytest_cudalink.guardrails.routing import check_input
from pytest_cudalink.guardrails.rules import KnownDriver, judge
from pytest_cudalink.versions import CudaVersion
from tests.guardrails.test_rules import item

NEW = KnownDriver(CudaVersion(99, 0))
NOT_JUDGED = "ltoir from nvrtc to nvJitLink: not judged, a release is not known"


@pytest.mark.parametrize(
    ("producer", "consumer", "kind", "made", "read", "fine"),
    [
        ("nvrtc", "nvJitLink", "ltoir", "13.0", "13.0", True),
        ("nvrtc", "nvJitLink", "ltoir", "13.0", "13.2", True),
        ("nvrtc", "nvJitLink", "ltoir", "13.2", "13.0", False),
        ("nvrtc", "nvJitLink", "ltoir", "12.9", "13.0", False),
        ("nvrtc", "nvJitLink", "ltoir", "13.0", "12.9", False),
        *[("nvrtc", "nvJitLink", kind, "13.2", "12.9", True) for kind in ("ptx", "elf", "cubin")],
        *[("nvvm", "nvJitLink", kind, "13.0", "13.2", False) for kind in ARTIFACT_KINDS],
        *[("nvrtc", "nvvm", kind, "13.0", "13.2", False) for kind in ARTIFACT_KINDS],
        *[("nvvm", "nvJitLink", kind, "13.2", "13.2", True) for kind in ARTIFACT_KINDS],
    ],
)
def test_pipelines(producer, consumer, kind, made, read, fine: bool) -> None:
    """NVVM wants the exact release; NVRTC into nvJitLink: LTO-IR the same major, not newer; the rest always."""
    pipeline = Pipeline(producer, consumer, kind)
    ends = item(producer, made), item(consumer, read)
    expected = "compatible" if fine else "incompatible"
    assert check_pipeline(pipeline, *ends).status == expected
    for first, second in (ends, ends[::-1]):
        assert judge(second, [first], driver=NEW, pipelines=[pipeline]).status == expected


@pytest.mark.parametrize(
    ("producer", "reader", "fix"),
    [
        ("nvvm 13.2", "nvJitLink 13.0", "[nvjitlink,nvvm]==13.2.*' 'nvidia-nvjitlink==13.2.*'"),
        ("nvvm 13.0", "nvJitLink 13.2", "[nvjitlink,nvvm]==13.2.*' 'nvidia-nvjitlink==13.2.*'"),
        ("nvrtc 13.2 loaded", "nvJitLink 13.0", "[nvjitlink,nvrtc]==13.2.*' 'nvidia-nvjitlink==13.2.*'"),
        ("nvrtc 13.2", "nvJitLink 13.0 loaded", "[nvjitlink,nvrtc]==13.0.*' 'nvidia-nvjitlink==13.0.*'"),
        ("main 13.2 artifact", "nvJitLink 13.0", "[nvjitlink]==13.2.*' 'nvidia-nvjitlink==13.2.*'"),
        ("nvvm 12.7", "nvJitLink 12.6", ""),
    ],
)
def test_repair_of_a_pipeline(producer: str, reader: str, fix: str) -> None:
    """To the newer release, but to what is loaded, and by the reader of an artifact; without wheels there is advice."""
    ends = []
    for name, version, *how in (producer.split(), reader.split()):
        via = ALREADY_LOADED if how == ["loaded"] else "site-packages"
        ends.append(item(name, version, "artifacts" if how == ["artifact"] else "dynamic-libs", via=via))
    pipeline = Pipeline("nvvm" if "nvvm" in producer else "nvrtc", "nvJitLink", "ltoir")
    verdict = check_pipeline(pipeline, *ends)
    advice = "" if fix else "use an installed CUDA 12.7"
    assert (str(verdict.fix), verdict.otherwise[:26]) == (f"pip install 'cuda-toolkit{fix}" if fix else "", advice)


@pytest.mark.parametrize(
    ("ends", "said"),
    [
        *((("nvrtc", "nvJitLink", kind), "known: ltoir, ptx, elf, cubin") for kind in ("fatbin", "LTOIR", "")),
        (("nvrtc", "cublas", "ptx"), r"'nvrtc' -> 'cublas'; known: nvvm -> \*, \* -> nvvm, nvrtc -> nvJitLink, "),
    ],
)
def test_pipelines_without_a_rule(ends: tuple[str, str, str], said: str) -> None:
    """Kinds and ends that have none are a ValueError that lists those that have."""
    with pytest.raises(ValueError, match=said):
        Pipeline(*ends)


def test_too_new_ltoir_speaks_as_the_linker_does() -> None:
    """The pipeline rule and the linker's own error share their words."""
    verdict = check_pipeline(Pipeline("nvrtc", "nvJitLink", "ltoir"), item("nvrtc", "13.2"), item("nvJitLink", "13.0"))
    said, measured, _ = verdict.message.partition(" (measured for sm_90: nvJitLinkAddData answers 14 ")
    assert (verdict.severity, bool(measured)) == ("error", True)
    assert said.endswith(
        "made by CUDA 13.2, linker understands up to 13.0: install 'nvidia-nvjitlink>=13.2', "
        "or compile with CUDA 13.0 or older"
    )


def test_a_refusal_says_why_and_what_was_measured() -> None:
    """A promise may be stricter than the measurement; beyond the atlas, the rule is extrapolated; NVVM has none."""
    pipeline = Pipeline("nvrtc", "nvJitLink", "ltoir")
    stricter = check_pipeline(pipeline, item("nvrtc", "12.9"), item("nvJitLink", "13.0"))
    assert "linker is of CUDA 13.0; LTO-IR is promised to work within one major version" in stricter.message
    assert stricter.message.endswith("into a linker that is not older (measured for sm_90: works)")
    beyond = check_pipeline(pipeline, item("nvrtc", "14.0"), item("nvJitLink", "13.0"))
    assert "(not measured: CUDA 14.0 is not in the atlas of " in beyond.message
    assert (stricter.severity, beyond.severity) == ("warning", "error")
    nvvm = check_pipeline(Pipeline("nvvm", "nvJitLink", "ltoir"), item("nvvm", "13.0"), item("nvJitLink", "13.2"))
    assert nvvm.message.endswith("linker is of CUDA 13.2; NVVM's output is for the tools of its own release")


@pytest.mark.parametrize(
    ("made", "read", "message"),
    [
        ("13.0", "13.2", "ltoir from nvrtc to nvJitLink: CUDA 13.0 into CUDA 13.2 (same-major)"),
        *((version, two, NOT_JUDGED) for version, two in ((None, "13.2"), ("13.2", None), (None, None))),
        ("12.9", "13.2", "ltoir from nvrtc to nvJitLink: made by CUDA 12.9, linker is of CUDA 13.2; "),
    ],
)
def test_verdicts_of_a_pipeline_name_it(made: str | None, read: str, message: str) -> None:
    """With its ends, its kind, and the rule's name."""
    verdict = check_pipeline(Pipeline("nvrtc", "nvJitLink", "ltoir"), item("nvrtc", made), item("nvJitLink", read))
    assert verdict.message.startswith(message)
    assert (verdict.rule, verdict.status == "compatible") == ("pipeline", made != "12.9")
    assert [text.partition(" at ")[0] for text in verdict.items] == ["nvrtc library", "nvJitLink library"]


class Guard:
    """A guard in a process with some items, which notes what it is asked."""

    def __init__(self, *here: Item) -> None:
        self.here, self.asked = here, []

    def present(self) -> tuple[Item, ...]:
        """Return the items of the process."""
        return self.here

    def check_artifact(self, *words: object) -> None:
        self.asked.append(words)

    def declare_pipeline(self, *words: object) -> None:
        self.asked.append(words)


MADE = CudaVersion(13, 0)


@pytest.mark.parametrize(
    ("here", "declared"),
    [
        ([item("nvrtc", "13.0"), item("nvJitLink", "13.2"), item("nvrtc", "13.2", "headers")], True),
        ([item("nvrtc", "13.2")], False),
        ([item("nvrtc", "13.0"), item("nvrtc", "13.2")], False),
        ([item("cudart", "13.0")], False), ([item("nvrtc", "13.0", "headers")], False), ([], False),
    ],
)  # fmt: skip
def test_an_input_of_the_linker(monkeypatch, here, declared) -> None:
    """It is checked by its header; its pipeline is declared where this process's NVRTC is of the release in it."""
    monkeypatch.setattr(probes, "nvjitlink", lambda: SimpleNamespace(path="/site/libnvJitLink.so.13"))
    monkeypatch.setattr(attribution, "owner", lambda path: SimpleNamespace(name=f"owner of {path}"))
    guard = Guard(*here)
    assert check_input(guard, "a.ptx", SimpleNamespace(kind="ptx", producer=MADE), CudaVersion(13, 2)) is None
    (kind, producer, consumer), *pipelines = guard.asked
    assert kind == "ptx"
    words = ("memory", "the linker's inputs", "ctk", MADE, "its own header")
    assert producer == Item("artifacts", "a.ptx", *words)
    path, release = "/site/libnvJitLink.so.13", CudaVersion(13, 2)
    words = (path, "pytest_cudalink.probes", "ctk", release, "nvJitLinkVersion", f"owner of {path}")
    assert consumer == Item("dynamic-libs", "nvJitLink", *words)
    assert pipelines == ([("nvrtc", "nvJitLink", "ptx")] if declared else [])


def test_an_input_of_a_linker_that_is_not_known(monkeypatch) -> None:
    """A faked one has no file, and neither has one whose file is not known."""
    monkeypatch.setattr(attribution, "owner", lambda path: None)
    monkeypatch.setattr(probes, "nvjitlink", lambda: SimpleNamespace(path=None))
    unknown, guard = SimpleNamespace(kind="ptx", producer=MADE), Guard()
    check_input(guard, "a.ptx", unknown, MADE)
    monkeypatch.setattr(probes, "nvjitlink", lambda: SimpleNamespace(path="/site/libnvJitLink.so.13"))
    with probes.fake(nvjitlink="13.0"):
        check_input(guard, "a.ptx", unknown, MADE)
    rows = [(item.path, item.witness, item.wheel) for _, _, item in guard.asked]
    assert rows == [("?", "nvJitLinkVersion", ""), ("?", "faked", "")]


def test_inputs_that_are_not_checked(monkeypatch) -> None:
    """One without a release, and one of a kind that has no rule; what the guard refuses is given back."""
    monkeypatch.setattr(probes, "nvjitlink", lambda: SimpleNamespace(path=None))
    guard = Guard()
    for kind, made in (("ptx", None), ("fatbin", MADE)):
        assert check_input(guard, "a", SimpleNamespace(kind=kind, producer=made), MADE) is None
    assert guard.asked == []
    error = CompatibilityCheckError(Verdict("error", "no", kind="pipeline"))

    def refuse(*_: object) -> None:
        raise error

    guard.check_artifact = refuse
    assert check_input(guard, "a", SimpleNamespace(kind="ptx", producer=MADE), MADE) is error
