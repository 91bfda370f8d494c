"""The dispatch table: the file, its expansion, and the pure function over it."""

from dataclasses import replace
from itertools import product

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pytest_cudalink.linker import dispatch
from pytest_cudalink.linker.dispatch import Case, Decision, Policy, Row, cases, choose_backend, explain, policies
from pytest_cudalink.versions import CudaVersion

UNAVAILABLE, MATCHING = "nvJitLink is not available", "matching major versions"

#: The published table, written by hand: (driver, nvJitLink, LTO needed) -> result. An oracle that shares no code with
#: the one that reads the file.
STRICT_MAJOR = {
    (driver, None, lto): UNAVAILABLE if lto else "driver" for driver in (None, 12, 13) for lto in (True, False)
}
STRICT_MAJOR |= {(driver, own, lto): "nvjitlink" for own in (12, 13) for driver in (None, own) for lto in (True, False)}
STRICT_MAJOR |= {
    (12, 13, False): "driver",
    (13, 12, False): "driver",
    (12, 13, True): MATCHING,
    (13, 12, True): MATCHING,
}
NEWER_DRIVER_OK = STRICT_MAJOR | {(13, 12, False): "nvjitlink", (13, 12, True): "nvjitlink"}
RELEASED = {key: ("nvjitlink" if key[1] else value) for key, value in STRICT_MAJOR.items()}
ORACLES = {"strict-major": STRICT_MAJOR, "newer-driver-ok": NEWER_DRIVER_OK, "released": RELEASED}

majors = st.one_of(st.none(), st.integers(10, 20))
nvjitlinks = st.one_of(st.none(), st.tuples(st.integers(12, 20), st.integers(0, 12)))


def outcome(*arguments, policy: str) -> str:
    """The backend, or the stable words of the error."""
    try:
        return choose_backend(*arguments, policy=policy)
    except RuntimeError as error:
        return next(words for words in (UNAVAILABLE, MATCHING) if words in str(error))


@pytest.mark.parametrize("policy", ORACLES)
def test_every_situation_of_the_published_table(policy: str) -> None:
    """Both ways to need LTO count alike, and the minor of nvJitLink never matters."""
    for (driver, nvjitlink, needed), expected in ORACLES[policy].items():
        for minor, ltoir, lto in product((3, 9), (False, True), (False, True)):
            if (ltoir or lto) != needed:
                continue
            version = None if nvjitlink is None else (nvjitlink, minor)
            assert outcome(driver, version, ltoir, lto, policy=policy) == expected


@given(majors, nvjitlinks, st.booleans(), st.booleans(), st.sampled_from(sorted(ORACLES)))
def test_total_and_pure(driver, nvjitlink, ltoir, lto, policy) -> None:
    """Any situation has an answer, always the same one, and `explain` agrees with it."""
    first = outcome(driver, nvjitlink, ltoir, lto, policy=policy)
    assert outcome(driver, nvjitlink, ltoir, lto, policy=policy) == first
    decision = explain(driver, nvjitlink, ltoir, lto, policy)
    assert (decision.backend or decision.message) == first or first in decision.message
    assert decision.row in str(decision)
    assert policy in str(decision)


@given(nvjitlinks, st.booleans(), st.booleans(), st.sampled_from(sorted(ORACLES)))
def test_driver_matters_exactly_when_it_does(nvjitlink, ltoir, lto, policy) -> None:
    """The driver is asked for if and only if some driver would change the row."""
    rows = {explain(major, nvjitlink, ltoir, lto, policy).row for major in (None, *range(10, 22))}
    assert dispatch.driver_matters(nvjitlink, ltoir, lto, policy) == (len(rows) > 1)


def test_cases_expand_every_row_without_overlap() -> None:
    """The rows of a policy, expanded, are all combinations, each once, and no row is empty."""
    everything = set(product(dispatch.DRIVER_MAJORS, dispatch.NVJITLINK_VERSIONS, (False, True), (False, True)))
    for name, policy in policies().items():
        expanded = list(cases(name))
        assert {case.arguments for case in expanded} == everything
        assert len(expanded) == len(everything)
        assert {case.row for case in expanded} == {row.name for row in policy.rows}
        assert len({case.id for case in expanded}) == len(expanded)


@pytest.mark.parametrize("policy", ORACLES)
def test_cases_hold_for_choose_backend(policy: str) -> None:
    """Our own function passes the check that downstream projects use."""
    for case in cases(policy):
        case.check(lambda *arguments: choose_backend(*arguments, policy=policy))


def raises(*_) -> None:
    raise RuntimeError("no")


@pytest.mark.parametrize(
    ("implementation", "faults"),
    [
        (lambda *_: "driver", ("expected 'nvjitlink'",)),
        (lambda *_: "nvjitlink", ("expected 'driver'", "expected a RuntimeError")),
        (raises, ("but it raised", "must say")),
    ],
)
def test_check_finds_faults(implementation, faults: tuple[str, ...]) -> None:
    """Every kind of wrong answer is found, and the text says which case; a crash is not an answer."""
    texts = []
    for case in cases():
        try:
            case.check(implementation)
        except AssertionError as error:
            assert case.id in str(error)
            texts.append(str(error))
    assert all(any(words in text for text in texts) for words in faults)
    with pytest.raises(ZeroDivisionError):
        next(cases()).check(lambda *_: 1 / 0)


def test_unknown_policy_lists_the_known() -> None:
    """The error names what exists."""
    for wrong in ("lenient", "", ["strict-major"]):
        with pytest.raises(ValueError, match="strict-major, newer-driver-ok, released"):
            choose_backend(13, (13, 0), False, False, policy=wrong)  # type: ignore[arg-type]


ROW = Row("r", "any", "none", "no", "driver", "because")


@pytest.mark.parametrize(
    "change",
    [
        {"driver": "newest"},
        {"nvjitlink": "12.9"},
        {"lto": "maybe"},
        {"result": "cuda"},
        {"result": "error"},
        {"message": "but this is no error"},
    ],
)
def test_a_wrong_row_is_refused(change: dict[str, str]) -> None:
    """A typing error in the file cannot become a row that never fits."""
    with pytest.raises(ValueError, match="dispatch row 'r'"):
        replace(ROW, **change)


def test_overlapping_and_missing_rows_are_refused() -> None:
    """Exactly one row must fit; the message names those that do."""
    twice = Policy("p", "", (ROW, replace(ROW, name="s")))
    with pytest.raises(ValueError, match="for driver 12, nvJitLink None, LTO False .* 'r', 's'"):
        twice.row_for(12, None, lto=False)
    with pytest.raises(ValueError, match="these do: none"):
        twice.row_for(12, None, lto=True)


@pytest.mark.parametrize("driver", ["unknown", "same", "different", "newer", "older"])
def test_a_known_driver_stands_in_no_relation_to_an_absent_nvjitlink(driver: str) -> None:
    """Only "any" fits a driver that is known where there is no nvJitLink to compare it with."""
    assert not replace(ROW, driver=driver).fits(12, None, lto=False)
    assert replace(ROW, driver=driver).fits(None, None, lto=False) == (driver == "unknown")


@pytest.mark.parametrize("lacking", ["no", "yes"])
def test_an_incomplete_file_is_refused(monkeypatch: pytest.MonkeyPatch, lacking: str) -> None:
    """The file is checked when it is read, with LTO and without, before any link asks for the row that lacks."""
    rows = dispatch.read_matrix("dispatch.toml")["strict-major"]["rows"]
    rows = [row for row in rows if (row["nvjitlink"], row["lto"]) != ("none", lacking)]
    monkeypatch.setattr(dispatch, "read_matrix", lambda _: {"p": {"summary": "", "rows": rows}})
    with pytest.raises(ValueError, match="policy 'p': .* these do: none"):
        policies.__wrapped__()


@pytest.mark.parametrize(
    ("ways", "matters"), [((False, False), False), ((True, False), True), ((False, True), True), ((True, True), True)]
)
def test_each_way_to_need_lto_makes_the_driver_matter(monkeypatch: pytest.MonkeyPatch, ways, matters: bool) -> None:
    """By a policy that looks at the driver for LTO alone; of nvJitLink its major counts."""
    newer = Row("newer", "newer", "present", "yes", "driver", "because")
    others = [replace(newer, name="other", driver=driver) for driver in ("same", "older", "unknown")]
    table = Policy("p", "", (newer, *others, replace(newer, name="other", driver="any", lto="no")))
    monkeypatch.setattr(dispatch, "policy_named", lambda _: table)
    assert dispatch.driver_matters.__wrapped__((13, 99), *ways, "p") == matters


def test_what_a_decision_says() -> None:
    """What was found, and str adds the policy and its row; a forced one, which the table was not asked about, does not.

    An unknown driver is another thing than one that was not asked; an error says what was found.
    """
    decision = explain(CudaVersion(12, 9), (13, 0), False, False)
    assert (decision.backend, decision.found) == ("driver", "driver CUDA 12.9, nvJitLink 13.0")
    assert decision.sentence == f"{decision.because} ({decision.found})"
    assert decision.message == decision.error == ""
    assert str(decision) == f"driver by policy strict-major, row 'different major': {decision.sentence}"
    error = explain(None, None, True, False)
    assert (error.backend, error.found) == (None, "driver unknown, nvJitLink none")
    assert explain(None, None, True, False, driver_asked=False).found == "driver not asked, nvJitLink none"
    assert error.message == f"{error.error} (found: {error.found}; policy strict-major)"
    assert str(error) == f"error by policy strict-major, row 'no nvJitLink for LTO': {error.sentence}"
    forced = Decision("driver", "strict-major", "forced", None, None, False, False, "an option says so")
    assert (forced.sentence, forced.message, forced.driver_asked) == ("an option says so", "", True)


@pytest.mark.parametrize("driver", [13, CudaVersion(13, 0), CudaVersion(13, 5)])
def test_the_major_of_the_driver_decides(driver: CudaVersion | int) -> None:
    """A full version of the driver counts as its major."""
    decision = explain(driver, (13, 2), False, True)
    assert (decision.backend, decision.row, decision.driver) == ("nvjitlink", "same major", driver)


def test_names_and_messages_of_cases() -> None:
    """The id names the versions, and the ways in which LTO is needed; a case has words if it is an error."""
    case = Case("p", "r", None, None, False, False, "driver")
    assert (case.id, case.message) == ("driver-unknown_nvjitlink-none", "")
    assert Case("p", "r", 13, (12, 9), True, True, "error").id == "driver-13_nvjitlink-12.9_ltoir_lto"
    assert Case("p", "r", 13, (12, 9), False, True, "error").id == "driver-13_nvjitlink-12.9_lto"
    messages = {(case.expected == "error", case.message) for case in cases()}
    assert messages == {(False, ""), (True, UNAVAILABLE), (True, MATCHING)}
