"""What `Linker` does before it calls a library: the order of its checks, and every row of the table."""

import os
import signal
import threading
import warnings
from collections.abc import Iterator
from itertools import chain
from unittest.mock import Mock

import pytest

from pytest_cudalink import probes
from pytest_cudalink.artifacts import Artifact
from pytest_cudalink.linker import Linker, LinkerOptions, LinkError, ObjectCode, VersionSkewError, objectcode, policy
from pytest_cudalink.linker.backends import OPENERS
from pytest_cudalink.linker.dispatch import Case, cases, policies
from pytest_cudalink.linker.objectcode import added_checks
from pytest_cudalink.targets import BackendChoice, LinkEvent
from pytest_cudalink.targets.base import Bundled
from pytest_cudalink.targets.steering import Steering, Watch, as_backend, linking_for, on_behalf_of


@pytest.fixture
def no_libraries(monkeypatch) -> list[Mock]:
    """Linkers whose library only records its options; the list of all links that were opened."""
    opened: list[Mock] = []

    def open_state(options) -> Mock:
        state = Mock(options=options, handle=1, error_log="", info_log="", lock=threading.RLock())
        state.complete.return_value = b""
        state.close.side_effect = lambda: setattr(state, "handle", 0)
        opened.append(state)
        return state

    for backend in OPENERS:
        monkeypatch.setitem(OPENERS, backend, open_state)
    return opened


@pytest.fixture
def no_probes(monkeypatch):
    """Any probe is a failure: what comes before them must not ask."""
    for name in ("nvjitlink_version", "driver_version", "device_arch"):
        monkeypatch.setattr(probes, name, lambda: pytest.fail("a probe was asked too early"))


@pytest.mark.parametrize("case", [*chain(*map(cases, policies()))], ids=lambda case: f"{case.policy}-{case.id}")
def test_every_row_through_the_constructor(case: Case, no_libraries, sample_code) -> None:
    """The constructor takes the table's backend, or raises the table's error, and says why."""
    code = sample_code("12.9/main.ltoir" if case.inputs_have_ltoir else "12.9/main.ptx")
    options = LinkerOptions(arch="sm_90", link_time_optimization=case.lto_requested or None, check_inputs=False)

    def construct(driver, nvjitlink, ltoir, lto) -> str:
        with probes.fake(driver=None if driver is None else (driver, 0), nvjitlink=nvjitlink):
            linker = Linker(code, options=options, policy=case.policy)
        assert (linker.decision.row, linker.decision.policy) == (case.row, case.policy)
        return linker.backend

    case.check(construct)


@pytest.mark.parametrize(
    ("names", "changes", "error", "words"),
    [
        ((), {}, ValueError, "at least one ObjectCode"),
        (["13.0/main.ptx"], {"options": {"arch": "sm_90"}}, TypeError, "LinkerOptions, got dict"),
        (["cut"], {}, ValueError, r"input 'cut' \(cubin\) cannot be linked: damaged cubin"),
        (["cut"], {"options": LinkerOptions(check_inputs=False)}, ValueError, "damaged cubin"),
        # a linked cubin goes to no library: nvJitLink takes it, and gives back an image without its kernels
        (["13.0/linked.cubin"], {}, ValueError, "linked.cubin' .* linked already: .*relocatable_device_code=True"),
        (["odd"], {}, ValueError, "'odd' was given as ptx, but its bytes are cubin for sm_90"),
    ],
)
def test_refused_before_anything_is_asked(names, changes, error, words, no_probes, samples, sample_code) -> None:
    """There must be something to link, sound, of the kind that it was given as, and options of the right type."""
    cubin = samples["13.0/main.cubin"]
    made = {"cut": ObjectCode.from_cubin(cubin[:1000], name="cut"), "odd": ObjectCode.from_ptx(cubin, name="odd")}
    with pytest.raises(error, match=words):
        Linker(*(made.get(name) or sample_code(name) for name in names), **changes)


@pytest.mark.parametrize("wrong", [None, b"ptx", "main.ptx", 3, LinkerOptions()])
def test_inputs_are_object_codes(wrong: object, no_probes, sample_code) -> None:
    """A wrong input is a TypeError before any dispatch, also after good ones and with damaged ones."""
    with pytest.raises(TypeError, match=f"got {type(wrong).__name__}"):
        Linker(sample_code("13.0/main.ptx"), ObjectCode.from_ptx(b"junk"), wrong)  # type: ignore[arg-type]


def test_the_driver_is_asked_only_when_the_row_depends_on_it(monkeypatch, no_libraries, sample_code) -> None:
    """Without nvJitLink the answer is known, and under 'released' too."""
    options = LinkerOptions(arch="sm_90", check_inputs=False)
    with probes.fake(driver="13.0", nvjitlink=None):
        linker = Linker(sample_code("13.0/main.ptx"), options=options)
        assert (linker.backend, linker.decision.driver) == ("driver", None)
        assert "driver not asked, nvJitLink none" in linker.decision.sentence
        with pytest.raises(RuntimeError, match="found: driver not asked, nvJitLink none"):
            Linker(sample_code("13.0/main.ltoir"), options=options)
    asked = []
    monkeypatch.setattr(probes, "driver_version", lambda: asked.append(1))
    with probes.fake(nvjitlink="13.0"):
        Linker(sample_code("13.0/main.ptx"), options=options, policy="released")
        assert not asked
        assert "driver not asked" in Linker(sample_code("13.0/main.ptx"), backend="nvjitlink").decision.found
        assert "driver unknown" in Linker(sample_code("13.0/main.ptx"), options=options).decision.sentence
        assert asked
        monkeypatch.setattr(probes, "driver_version", lambda: 1 / 0)  # only an error of CUDA means that it is unknown
        with pytest.raises(ZeroDivisionError):
            Linker(sample_code("13.0/main.ptx"), options=options)


def test_policy_precedence(monkeypatch, no_libraries, sample_code) -> None:
    """Argument, then options, then the plugin's, then the environment's, then strict-major."""
    code, options = sample_code("12.9/main.ptx"), LinkerOptions(arch="sm_90", policy="newer-driver-ok")
    with probes.fake(driver="13.0", nvjitlink="12.9"):
        assert Linker(code, options=LinkerOptions(arch="sm_90")).decision.policy == "strict-major"
        monkeypatch.setenv("CUDALINK_POLICY", "released")
        assert Linker(code, options=LinkerOptions(arch="sm_90")).decision.policy == "released"
        previous = policy.set_default_policy("strict-major")
        assert Linker(code, options=LinkerOptions(arch="sm_90")).decision.policy == "strict-major"
        assert Linker(code, options=options).decision.policy == "newer-driver-ok"
        assert Linker(code, options=options, policy="released").decision.policy == "released"
        assert policy.set_default_policy(previous) == "strict-major"


def test_a_kept_decision_is_for_its_situation_alone(no_libraries, sample_code) -> None:
    """The same situation has the same decision; another policy, version, driver or kind of input has its own."""
    options = LinkerOptions(arch="sm_90", check_inputs=False)

    def decide(name: str, driver: str | None, nvjitlink: str, policy: str = "strict-major"):
        with probes.fake(driver=driver, nvjitlink=nvjitlink):
            return Linker(sample_code(f"12.9/main.{name}"), options=options, policy=policy).decision

    first = decide("ptx", "13.0", "13.0")
    assert decide("ptx", "13.0", "13.0") is first
    assert (first.backend, first.row) == ("nvjitlink", decide("ptx", "13.2", "13.0").row)
    assert decide("ptx", "13.2", "13.0").driver == (13, 2)
    assert decide("ptx", "13.0", "13.2").nvjitlink == (13, 2)
    assert decide("ptx", None, "13.0").driver is None
    assert decide("ltoir", "13.0", "13.0").inputs_have_ltoir
    assert decide("ptx", "13.0", "13.0", "released").policy == "released"
    assert decide("ptx", "12.9", "13.0").backend == "driver"
    assert decide("ptx", "13.0", "13.0") == first


def test_what_hooks_receive_is_read_once(sample_code) -> None:
    """A named input is the same object in every event; one without a name has that of its place."""
    named = sample_code("13.0/main.ptx")
    assert named.as_link_input(1) is named.as_link_input(2)
    assert named.as_link_input(1).name == "13.0/main.ptx"
    unnamed = ObjectCode.from_ptx(named.code)
    assert [unnamed.as_link_input(number).name for number in (1, 2)] == ["input 1", "input 2"]


@pytest.fixture
def links() -> Iterator[list[LinkEvent]]:
    """A run that forces the driver is active; its links."""
    events: list[LinkEvent] = []
    steering = Steering(targets={"bundled": Bundled()}, on_link=events.append)
    steering.start(BackendChoice("driver", "the run"))
    yield events
    steering.stop()


def test_who_forces(links, no_libraries, sample_code) -> None:
    """The argument wins over the run; links report only the run's choice."""
    code, options = sample_code("12.9/main.ptx"), LinkerOptions(arch="sm_90")
    with probes.fake(driver="12.9", nvjitlink="12.9"):
        linkers = [Linker(code, options=options, backend=backend) for backend in (None, "nvjitlink", "driver")]
        for linker in linkers:
            linker.link()
    argument = "forced by the argument 'backend'"
    assert [linker.decision.because for linker in linkers] == ["forced by the run", argument, argument]
    assert {linker.decision.row for linker in linkers} == {"forced"}
    assert linkers[-1].decision.sentence == argument
    forced = [("driver", "the run"), ("nvjitlink", None), ("driver", None)]
    assert [(event.backend, event.forced) for event in links] == forced
    for wrong in ("cuda", "", ["driver"]):
        with pytest.raises(ValueError, match="unknown backend .*; known: 'driver', 'nvjitlink'"):
            Linker(code, options=options, backend=wrong)  # type: ignore[arg-type]


def test_a_link_is_reported_once(links) -> None:
    """Its first error ends it, also where its code goes on; its backend may be unknown then, its versions are not."""
    refused, made = Watch("own"), Watch("own")
    for _ in range(2):
        with pytest.raises(RuntimeError), refused.step(last=True):
            raise RuntimeError("\nNVJITLINK_ERROR_PTX_COMPILE:\nno such word")
    made.backend = "driver"
    with made.step():
        assert not links[1:]
    with on_behalf_of("other"):
        assert linking_for("own") == "other"
    with made.step(last=True), probes.fake(driver="12.9"):
        assert linking_for("own") == "own"
        assert links[0].driver == "12.9"
    with probes.fake(driver=None):
        assert [(event.backend, event.result, event.driver, event.duration > 0) for event in links] == [
            ("unknown", "RuntimeError: NVJITLINK_ERROR_PTX_COMPILE", "12.9", True),
            ("driver", "ok", None, True),
        ]
    assert [as_backend(word) for word in ("nvJitLink", "Driver", "else")] == ["nvjitlink", "driver", None]


def test_added_checks(monkeypatch, no_libraries, sample_code) -> None:
    """An added check sees every leaf that nvJitLink is to link; its error becomes one that names the input."""
    seen = []

    def check(name, artifact, nvjitlink) -> Exception | None:
        seen.append((name, artifact.kind, str(nvjitlink)))
        return LookupError("two\nlines") if artifact.kind == "cubin" else None

    monkeypatch.setattr("pytest_cudalink.linker.objectcode.added_checks", [*added_checks, check])
    options = LinkerOptions(arch="sm_90")
    with probes.fake(driver="13.0", nvjitlink="13.0"):
        Linker(sample_code("13.0/main.ptx"), options=options, backend="nvjitlink")
        assert seen == [("13.0/main.ptx", "ptx", "13.0")]
        words = r"nvJitLink 13.0 must not link this input\n.*\n  two\n  lines"
        with pytest.raises(VersionSkewError, match=words) as caught:
            Linker(sample_code("13.0/main.cubin"), options=options, backend="nvjitlink")
        assert caught.value.input_name == "13.0/main.cubin"
        assert isinstance(caught.value.__cause__, LookupError)
        Linker(sample_code("13.0/main.cubin"), options=options, backend="driver")
        unchecked = LinkerOptions(arch="sm_90", check_inputs=False)
        Linker(sample_code("13.0/main.cubin"), options=unchecked, backend="nvjitlink")
    assert len(seen) == 2


@pytest.mark.parametrize("policy", ["lenient", "", ["strict-major"], 3])
@pytest.mark.parametrize("backend", [None, "nvjitlink"])
def test_wrong_policy(policy, backend, monkeypatch, no_libraries, sample_code) -> None:
    """A policy that does not exist is an error even with a backend, which needs no policy; so is the environment's."""
    with probes.fake(nvjitlink="13.0"), pytest.raises(ValueError, match="unknown linker policy .*; known: strict-"):
        Linker(sample_code("12.9/main.ptx"), options=LinkerOptions(arch="sm_90"), policy=policy, backend=backend)
    monkeypatch.setenv("CUDALINK_POLICY", "lenient")
    with pytest.raises(ValueError, match="unknown linker policy 'lenient'"):
        Linker(sample_code("12.9/main.ptx"))


@pytest.mark.parametrize("kind", ["ptx", "ltoir", "cubin"])
def test_newer_inputs_are_refused_with_both_versions(kind: str, no_libraries, sample_code) -> None:
    """Provenance is checked before the library: some of them accept what they cannot link."""
    code, words = sample_code(f"13.2/main.{kind}"), "^nvJitLink 13.0 cannot (?s:.*)made by CUDA 13.2, .* up to 13.0"
    with probes.fake(driver=None, nvjitlink="13.0"):
        with pytest.raises(VersionSkewError, match=words) as caught:
            Linker(code, options=LinkerOptions(arch="sm_90"))
        Linker(code, options=LinkerOptions(arch="sm_90", check_inputs=False))
    assert (caught.value.artifact.kind, caught.value.input_name) == (kind, code.name)
    assert isinstance(caught.value, LinkError)
    assert isinstance(caught.value, RuntimeError)
    with probes.fake(driver=None, nvjitlink="13.2"):
        Linker(code, options=LinkerOptions(arch="sm_90"))


@pytest.mark.parametrize(
    ("names", "arguments", "error", "words"),
    [
        ("12.9/main.ltoir", {"backend": "driver"}, ValueError, "main.ltoir' is LTO-IR.*the argument 'backend'"),
        ("12.9/main.ptx", {"nvjitlink": None, "backend": "nvjitlink"}, RuntimeError, "not available.*forced by"),
        ("13.2/main.ptx", {"driver": "13.0", "backend": "driver"}, VersionSkewError, "driver for CUDA 13.2 or newer"),
        ("nvcc/user.fatbin 13.2/main.ptx", {"nvjitlink": "13.0"}, VersionSkewError, "made by CUDA 13.2"),
        ("nvcc/user.fatbin", {"nvjitlink": "12.9"}, VersionSkewError, "made for CUDA 13.0, .*\n  measured"),
        # nvJitLink 12.9 silently accepts cubins of 13.x, and 13.0 prints what is defined twice, and goes on
        ("13.0/main.cubin", {"nvjitlink": "12.9"}, VersionSkewError, "made by CUDA 13.0"),
        ("13.0/user.ptx 13.2/user.cubin", {}, LinkError, "multiple .*_transform' in '13.2/.*cubin', first .*user.ptx"),
        ("nvcc/user-plain.fatbin 13.0/user.ptx", {}, LinkError, "multiple .*_transform' .* in 'nvcc/user-plain"),
        ("13.0/main.ptx", {"arch": "sm_70"}, ValueError, "arch = 'sm_70' is not an .* CUDA 13.2.*known: sm_75, sm_80"),
        ("13.0/main.ltoir", {"link_time_optimization": False}, ValueError, "= False, but input '.*main.ltoir' is LTO"),
    ],
)
def test_refused_by_its_checks(names: str, arguments: dict, error, words: str, no_libraries, sample_code) -> None:
    """What the library would accept in silence, crash on or explain badly does not reach it."""
    arguments = {"driver": None, "nvjitlink": "13.2", "arch": "sm_90", "backend": None} | arguments
    versions, backend = {name: arguments.pop(name) for name in ("driver", "nvjitlink")}, arguments.pop("backend")
    with probes.fake(**versions), pytest.raises(error, match=words):
        Linker(*map(sample_code, names.split()), options=LinkerOptions(**arguments), backend=backend)


def test_checks_that_do_not_apply(no_libraries, sample_code) -> None:
    """A driver whose version is not known is not judged; LTO is on where an input is LTO-IR."""
    options = LinkerOptions(arch="sm_90")
    with probes.fake(driver=None, nvjitlink="13.2"):
        Linker(sample_code("13.2/main.ptx"), options=options, backend="driver")
        Linker(sample_code("13.0/main.ltoir"), options=options)
    assert "-lto" in no_libraries[-1].options


def test_one_target_for_each_linker(no_libraries, sample_code) -> None:
    """What was linked comes again for the same target; another target needs another linker."""
    with probes.fake(driver=None, nvjitlink="13.3"):
        linker, closed = (Linker(sample_code("13.0/main.ltoir"), options=LinkerOptions(arch="sm_90")) for _ in range(2))
    first = linker.link()
    with pytest.raises(ValueError, match=r"link\('ltoir'\): this linker already made a cubin; make another Linker"):
        linker.link("ltoir")
    for each in (linker, closed, closed):
        each.close()
        assert (each.is_closed, each.handle, "closed" in repr(each)) == (True, 0, True)
    assert linker.link("cubin") is first
    with pytest.raises(RuntimeError, match="closed Linker"):
        closed.link()


def test_architecture_without_a_device(no_libraries, samples, sample_code, monkeypatch) -> None:
    """Without a device the inputs say it, if they agree; otherwise it must be given. An unknown one names its input."""
    monkeypatch.setattr(probes, "device_arch", lambda: None)
    odd, old = (samples["13.2/user.ptx"].replace(b"sm_90", arch) for arch in (b"sm_91", b"sm_70"))
    with probes.fake(driver=None, nvjitlink="13.2"):
        Linker(sample_code("13.2/main.ptx"))
        assert no_libraries[-1].options == ["-arch=sm_90"]
        for codes, words in (
            ([sample_code("13.2/main.ptx"), sample_code("13.2/user-sm_100.cubin")], "the inputs are for sm_100, sm_90"),
            ([sample_code("tile/add.fatbin")], "there is no device to ask, and the inputs name none"),
            ([ObjectCode.from_ptx(odd, name="x")], "input 'x' .*unknown architecture 'sm_91'; known"),
            ([ObjectCode.from_ptx(old, name="x")], "input 'x' = 'sm_70' is not an architecture of CUDA 13.2"),
        ):
            with pytest.raises(ValueError, match=words):
                Linker(*codes)
        Linker(sample_code("13.2/main.ltoir"), options=LinkerOptions(ptx=True))
        assert no_libraries[-1].options[0] == "-arch=compute_90"


def test_warnings_point_at_the_caller(no_libraries, sample_code) -> None:
    """Python shows a DeprecationWarning by default only where it points into one's own program."""
    options = LinkerOptions(arch="sm_90", optimize_unused_variables=True)
    with probes.fake(driver="13.0"), pytest.warns(DeprecationWarning, match="is deprecated on the driver") as caught:
        Linker(sample_code("13.0/main.ptx"), options=options, backend="driver")
    assert [warning.filename for warning in caught] == [__file__]


def test_object_code_sources(samples, tmp_path) -> None:
    """Bytes, a path as str or Path; a file's name is its path; text is not a path."""
    file, text = tmp_path / "main.ptx", samples["13.0/main.ptx"]
    file.write_bytes(text)
    assert {ObjectCode.from_ptx(source).code for source in (text, bytearray(text), str(file), file)} == {text}
    assert [ObjectCode.from_ptx(file, name=name).name for name in ("", "mine")] == [str(file), "mine"]
    assert repr(ObjectCode.from_ptx(b"text")) == "<ObjectCode '(no name)': ptx, 4 bytes>"
    for wrong, error, words in (
        (text.decode(), TypeError, "encode"),
        ("missing.ptx", FileNotFoundError, "missing"),
        (3, TypeError, "takes bytes or a path, got int"),
    ):
        with pytest.raises(error, match=words):
            ObjectCode.from_ptx(wrong)  # type: ignore[arg-type]
    with pytest.raises(TypeError, match="not made directly"):
        ObjectCode()


PTX = b".version 8.0\n.target sm_90\n.address_size 64\n"


def test_a_fork_while_another_thread_inspects(monkeypatch) -> None:
    """The child can inspect code, too: it waits for no lock that only a thread of its parent would release."""
    began, go = threading.Event(), threading.Event()
    inspect = objectcode.inspect

    def slow(data: bytes) -> Artifact:
        began.set()
        go.wait()
        return inspect(data)

    monkeypatch.setattr(objectcode, "inspect", slow)
    thread = threading.Thread(target=lambda: ObjectCode.from_ptx(PTX).artifact)
    thread.start()
    began.wait()
    monkeypatch.undo()
    with warnings.catch_warnings(action="ignore"):  # Python warns of a fork beside threads
        child = os.fork()
    if child == 0:
        os._exit(ObjectCode.from_ptx(PTX).artifact.kind != "ptx")
    late = threading.Timer(60, os.kill, (child, signal.SIGKILL))
    late.start()
    assert os.waitpid(child, 0)[1] == 0
    late.cancel()
    go.set()
    thread.join()
