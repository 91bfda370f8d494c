"""Requirements and documented failures: pure rules."""

import re
import string

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pytest_cudalink.environment import requirements
from pytest_cudalink.environment.requirements import NAMES, EnvironmentFact, Raises, Requirement, parse, unmet
from pytest_cudalink.linker import LinkError

VERSIONS = st.tuples(st.integers(0, 99), st.integers(0, 9))


def requirement_of(**keywords):
    """The only requirement of these keywords."""
    (requirement,) = parse(keywords)
    return requirement


@pytest.mark.parametrize(
    ("keywords", "text"),
    [
        ({"driver": ">=13.2"}, "driver >= 13.2"),
        ({"driver": "<14,>=13.2"}, "driver >= 13.2, < 14"),
        ({"nvjitlink": "13"}, "nvjitlink == 13.*"), ({"ctk": "~=12.9"}, "ctk ~= 12.9"),
        ({"ctk": "12.9.1"}, "ctk == 12.9.1.*"), ({"ctk": "==13.0.3.0"}, "ctk == 13.0.3.0"),
        ({"nvjitlink": ">13.0.87,<13.0.89"}, "nvjitlink > 13.0.87, < 13.0.89"),
        ({"driver": "13.6"}, "driver == 13.6.*"),  # a release that is not known yet
        ({"driver": "<12"}, "driver < 12"), ({"driver": " 13 "}, "driver == 13.*"),
        ({"arch": "compute_90"}, "arch sm_90"),
        ({"arch": "sm_999"}, "arch sm_999"),  # a device that is not known yet
        ({"arch": ">=9.0"}, "arch >= 9.0"), ({"gpu": True}, "a GPU"), ({"gpu": False}, "no GPU"),
    ],
)  # fmt: skip
def test_text(keywords, text) -> None:
    """A requirement reads the same however it was written."""
    assert str(requirement_of(**keywords)) == text


@given(VERSIONS, VERSIONS)
def test_specifier_orders_versions_as_numbers(wanted, have) -> None:
    requirement = requirement_of(driver=">={}.{}".format(*wanted))
    assert requirement.met_by(EnvironmentFact("{}.{}".format(*have))) == (have >= wanted)


@given(VERSIONS, st.integers(0, 999))
def test_bare_number_means_that_release(version, patch) -> None:
    """``"13.0"`` is met by 13.0.88, and by no other minor."""
    requirement = requirement_of(nvjitlink="{}.{}".format(*version))
    assert requirement.met_by(EnvironmentFact("{}.{}.{}".format(*version, patch)))
    assert not requirement.met_by(EnvironmentFact(f"{version[0]}.{version[1] + 1}.{patch}"))


@given(st.sampled_from(NAMES), st.text(string.printable) | st.integers() | st.lists(st.integers()) | st.floats())
def test_any_value_is_a_requirement_or_a_value_error(name, value) -> None:
    """An impossible value is refused with the name and the value, and nothing else is raised."""
    try:
        requirements = parse({name: value})
    except ValueError as error:
        assert f"{name}={value!r}" in str(error)
    else:
        for kind in ("real", "emulated", "absent"):
            for version in (None, "13.0", "sm_90", "nonsense"):
                assert requirements[0].met_by(EnvironmentFact(version, kind)) in (True, False)


@pytest.mark.parametrize("value", ["=> 13", "", "   ", ">=13.2 or so", True, 13.2])
def test_impossible_versions(value) -> None:
    """Among them what could never hold."""
    with pytest.raises(ValueError, match="is not a version specifier; write driver='>=13.0'"):
        parse({"driver": value})
    with pytest.raises(ValueError, match="is not a version specifier; write arch="):
        parse({"arch": value})


@pytest.mark.parametrize(
    ("keywords", "fact", "met"),
    [
        ({"arch": "sm_90"}, EnvironmentFact("sm_100"), False),
        ({"arch": "sm_90a"}, EnvironmentFact("sm_90"), True),
        ({"arch": "sm_90a"}, EnvironmentFact("sm_89"), False),
        ({"arch": "sm_100a"}, EnvironmentFact("sm_103"), False),
        ({"arch": "sm_100f"}, EnvironmentFact("sm_103"), True),
        ({"arch": "sm_103f"}, EnvironmentFact("sm_100"), False),
        ({"arch": "sm_100f"}, EnvironmentFact("sm_101"), False),
        ({"arch": "sm_101f"}, EnvironmentFact("sm_103"), False),
        ({"arch": "sm_100f"}, EnvironmentFact("sm_120"), False),
        ({"arch": "sm_90"}, EnvironmentFact("nonsense"), False),
        ({"arch": ">=9.0"}, EnvironmentFact("sm_100"), True),
        ({"arch": ">=10"}, EnvironmentFact("sm_90"), False),
        ({"arch": ">=9.0"}, EnvironmentFact(None, "absent"), False),
        ({"gpu": True}, EnvironmentFact("sm_90"), True),
        ({"gpu": True}, EnvironmentFact("sm_90", "emulated"), False),
        ({"gpu": False}, EnvironmentFact("sm_90", "emulated"), True),
        ({"gpu": True}, EnvironmentFact(None, "absent"), False),
        ({"gpu": True}, EnvironmentFact(None), False),
        ({"driver": ">=13"}, EnvironmentFact(None, "absent"), False),
        ({"driver": ">=13"}, EnvironmentFact("nonsense"), False),
        ({"driver": "!=13.0"}, EnvironmentFact("nonsense"), False),
        ({"driver": "===13.0 "}, EnvironmentFact("13.1"), False),
        ({"ctk": ">=13.0"}, EnvironmentFact("13.1rc1"), True),  # a pre-release meets a requirement for older releases
        ({"arch": "sm_100f"}, EnvironmentFact("sm_110"), False),
        ({"arch": "sm_101f"}, EnvironmentFact("sm_101"), True),
        ({"arch": "sm_100"}, EnvironmentFact("sm_103"), False),
        ({"arch": "sm_103a"}, EnvironmentFact("sm_103"), True),
    ],
)
def test_what_meets_a_requirement(keywords, fact, met) -> None:
    """An emulated device is no GPU; a family goes on within its major, upwards; other names mean one device."""
    assert requirement_of(**keywords).met_by(fact) is met


@pytest.mark.parametrize(
    ("keywords", "words"),
    [
        ({"gpu": 1}, "gpu=1; expected True for a real device, or False for none"),
        ({"arch": "hopper"}, "specifier; write arch='sm_90', or a specifier of the compute capability: arch='>=9.0'"),
        ({"arch": "sm_91"}, "arch='sm_91' is unknown; expected sm_50, sm_52,"),
        ({"ctk": "new"}, "ctk='new' is not a version specifier; write ctk='>=13.0'"),
        ({"ctk": "===new"}, "ctk='===new' is not a version specifier; write ctk='>=13.0'"),
        ({"driver": "575"}, "driver='575': '575' is a branch of drivers, which came with CUDA 12.9; write a version"),
        ({"driver": ">=570"}, "driver='>=570': '570' is a branch of drivers, which came with CUDA 12.8; write"),
        ({"driver": "<14,>=570"}, "driver='<14,>=570': '570' is a branch"),
        ({"driver": "==575.51.03"}, "driver='==575.51.03': '575.51.03' is a branch of drivers"),
        ({"nvjitlink": "==575.*"}, "nvjitlink='==575.*': '575' is a branch of drivers"),
        ({"driver": "12.9.1"}, "driver='12.9.1': '12.9.1' has three numbers, and drivers of one CUDA release answer"),
        ({"ctk": "13.10"}, "ctk='13.10': no release of CUDA is; expected 12.0 to 12.9, 13.0 to 13.5, or a newer one"),
        ({"ctk": "13.10.1"}, "ctk='13.10.1': no release of CUDA is;"),
        ({"driver": "12.11"}, "driver='12.11': no release of CUDA is;"),
        ({"driver": "==1!13.0"}, "driver='==1!13.0': no release of CUDA is;"),
        ({"driver": ">13.1,<13.0"}, "driver='>13.1,<13.0': no release of CUDA is;"),
    ],
)
def test_the_error_says_what_to_write(keywords, words) -> None:
    with pytest.raises(ValueError, match=f"^(?:.* )?{re.escape(words)}"):
        parse(keywords)


def test_requirements_that_are_made_by_hand() -> None:
    """Without a bound there is nothing to compare with; a GPU is wanted unless the requirement says otherwise."""
    assert Requirement("driver", "driver").met_by(EnvironmentFact("13.0")) is False
    assert Requirement("arch", "arch").met_by(EnvironmentFact("sm_90")) is False
    assert Requirement("arch", "arch", arch="nonsense").met_by(EnvironmentFact("sm_90")) is False
    assert Requirement("gpu", "a GPU").met_by(EnvironmentFact("sm_90")) is True
    assert Requirement("gpu", "no GPU", wanted=False).met_by(EnvironmentFact("sm_90")) is False


def test_only_what_is_required_is_asked() -> None:
    """Only facts that a requirement needs are read: opening the driver is not free."""

    class ReadFacts(dict):
        def __missing__(self, name):
            self[name] = EnvironmentFact("12.9")
            return self[name]

    asked = ReadFacts()
    assert [str(item) for item in unmet(parse({"nvjitlink": ">=13", "ctk": ">=12"}), asked)] == ["nvjitlink >= 13"]
    assert set(asked) == {"ctk", "nvjitlink"}


class BindingsError(Exception):
    """As cuda-bindings raises it."""

    def __init__(self, status: int, text: str) -> None:
        self.status = status
        super().__init__(text)


LINK_ERROR = LinkError("nvJitLink: x failed", backend="nvjitlink", code=4, code_name="NVJITLINK_ERROR_PTX_COMPILE")


@pytest.mark.parametrize(
    ("raises", "error", "matches"),
    [
        (Raises("NVJITLINK_ERROR_PTX_COMPILE"), LINK_ERROR, True),
        (Raises(4), LINK_ERROR, True), (Raises(5), LINK_ERROR, False),
        (Raises("NVJITLINK_ERROR_PTX_COMPILE"), BindingsError(4, "ERROR_PTX_COMPILE (4)"), True),
        (Raises("NVJITLINK_ERROR_PTX"), BindingsError(4, "ERROR_PTX_COMPILE (4)"), False),
        (Raises(4), BindingsError(4, ""), True),
        (Raises("CUDA_ERROR_INVALID_PTX"), RuntimeError("CUDA_ERROR_INVALID_PTX: a PTX JIT"), True),
        (Raises(ValueError, RuntimeError), RuntimeError(), True),
        (Raises(ValueError), RuntimeError(), False),
        (Raises(RuntimeError, match="too new"), RuntimeError("input too new"), True),
        (Raises(match="too new"), RuntimeError("too new"), True),
        (Raises("1.5"), RuntimeError("1x5"), False), (Raises(0), BindingsError(0, ""), True),
        (Raises(1), BindingsError(True, ""), True), (Raises(4), BindingsError("4", ""), False),
        (Raises("PTX"), RuntimeError("PTX"), True), (Raises("PTX"), RuntimeError("PTXAS"), False),
        (Raises("PTX"), RuntimeError("NVPTX"), False),
        (Raises(ValueError, "PTX"), RuntimeError("PTX"), True),
        (Raises(BaseException), KeyError("x"), True),
    ],
)  # fmt: skip
def test_documented_failure(raises, error, matches) -> None:
    """Codes are found where each library keeps them; a name is matched whole; one of several is enough."""
    assert raises.matches(error) is matches


def test_code_of_the_cause_counts() -> None:
    """A wrapped library error is still that error; a ring of causes ends."""
    outer = RuntimeError("link failed")
    outer.__cause__ = LINK_ERROR
    assert Raises("NVJITLINK_ERROR_PTX_COMPILE").matches(outer)
    LINK_ERROR.__cause__ = outer
    try:
        assert not Raises("CUDA_ERROR_UNKNOWN").matches(outer)
    finally:
        LINK_ERROR.__cause__ = None


def test_wrong_raises() -> None:
    """No expectation, or one that is neither a code nor an exception, is refused with what can be."""
    with pytest.raises(TypeError, match=r"^Raises\(\) needs a code .*, an exception type, or match"):
        Raises()
    for wrong in (True, 1.5, "", int, KeyboardInterrupt):
        words = f"^Raises\\({re.escape(repr(wrong))}\\): expected the name or number of a code"
        with pytest.raises(TypeError, match=words):
            Raises("CUDA_ERROR_UNKNOWN", wrong)
    with pytest.raises(ValueError, match="is not a regular expression"):
        Raises(match="(")


@pytest.mark.parametrize(
    ("raises", "shown"),
    [
        (Raises("CUDA_ERROR_UNKNOWN", RuntimeError, match="x"),
         ("CUDA_ERROR_UNKNOWN or RuntimeError matching 'x'", "'CUDA_ERROR_UNKNOWN', RuntimeError, match='x'")),
        (Raises(match="x"), ("an exception matching 'x'", "match='x'")),
        (Raises(222), ("222", "222")),
    ],
)  # fmt: skip
def test_shown(raises, shown) -> None:
    """Both forms name what is expected."""
    assert (str(raises), repr(raises)) == (shown[0], f"Raises({shown[1]})")


@pytest.mark.parametrize(
    ("fact", "shown"),
    [
        (EnvironmentFact("13.0"), "13.0"),
        (EnvironmentFact("13.0", "emulated"), "13.0, emulated"),
        (EnvironmentFact("13.0", "faked"), "13.0, faked"),
        (EnvironmentFact(None, "absent"), "none"),
        (EnvironmentFact(None, "faked"), "none, faked"),
    ],
)
def test_found_shows_its_kind(fact: EnvironmentFact, shown: str) -> None:
    """A real value is shown alone, others with their kind; an absent one as none."""
    assert str(fact) == shown
    assert fact.source == ""


def test_order_and_absence_of_requirements() -> None:
    """The order is that of `NAMES`; None stands for no requirement, False for a device does not."""
    requirements = parse({"arch": "sm_90", "gpu": False, "driver": None, "ctk": ">=13"})
    assert [requirement.name for requirement in requirements] == ["ctk", "gpu", "arch"]


def test_a_name_as_attribute() -> None:
    """The attributes ``code_name`` and ``name`` carry codes, too."""
    error = RuntimeError("failed")
    error.name = "CUDA_ERROR_INVALID_PTX"  # type: ignore[attr-defined]
    assert Raises("CUDA_ERROR_INVALID_PTX").matches(error)
    assert not Raises("CUDA_ERROR_INVALID").matches(error)


@pytest.mark.parametrize("arch", ["sm_119", "sm_91"])
def test_newer_architectures_are_believed(arch: str, monkeypatch) -> None:
    """One after the newest that is known may exist; one between the known ones does not."""
    assert [requirement_of(arch=newer).arch for newer in ("sm_121", "sm_122")] == ["sm_121", "sm_122"]
    with pytest.raises(ValueError, match=f"arch='{arch}' is unknown"):
        parse({"arch": arch})
    newest = requirements.ARCHITECTURES[-1]
    table = (*requirements.ARCHITECTURES[:-1], newest._replace(number=newest.number + 5))
    monkeypatch.setattr(requirements, "ARCHITECTURES", table)
    with pytest.raises(ValueError, match=rf"arch='sm_{newest.number + 1}' is unknown"):
        parse({"arch": f"sm_{newest.number + 1}"})
