"""The backend for a link: a pure function over the published table `matrices/dispatch.toml`.

Nothing here probes anything, and nothing here imports pytest or CUDA.
"""

import operator
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import cache
from itertools import product
from typing import Literal, get_args

from ..base.tables import read_matrix
from ..compat.names import DEFAULT_POLICY
from ..targets.base import Backend
from ..versions import CudaVersion

_Relation = Literal["any", "unknown", "same", "different", "newer", "older"]
_Presence = Literal["none", "present"]
_Lto = Literal["no", "yes", "any"]
_Result = Literal["driver", "nvjitlink", "error"]

_RELATIONS: dict[str, Callable[[int, int], bool]] = {
    "same": operator.eq,
    "different": operator.ne,
    "newer": operator.gt,
    "older": operator.lt,
}

#: Values that stand for every situation when the table is expanded: unknown, older than every nvJitLink, each major
#: of nvJitLink, and the one after them.
DRIVER_MAJORS: tuple[int | None, ...] = (None, 11, 12, 13, 14)
NVJITLINK_VERSIONS: tuple[CudaVersion | None, ...] = (
    None,
    CudaVersion(12, 3),
    CudaVersion(12, 9),
    CudaVersion(13, 0),
    CudaVersion(13, 2),
)


@dataclass(frozen=True)
class Row:
    """One row of a policy; the fields are explained at the head of `matrices/dispatch.toml`."""

    name: str
    driver: _Relation
    nvjitlink: _Presence
    lto: _Lto
    result: _Result
    because: str
    message: str = ""

    def __post_init__(self) -> None:
        """Raise ValueError for an unknown word, so that a typo cannot become a row that never fits."""
        allowed = (("driver", _Relation), ("nvjitlink", _Presence), ("lto", _Lto), ("result", _Result))
        for name, kind in allowed:
            if getattr(self, name) not in get_args(kind):
                msg = f"dispatch row {self.name!r}: {name} = {getattr(self, name)!r}, expected one of {get_args(kind)}"
                raise ValueError(msg)
        if (self.result == "error") != bool(self.message):
            raise ValueError(f"dispatch row {self.name!r}: a message goes with result 'error', and only with it")

    def fits(self, driver_major: int | None, nvjitlink_major: int | None, *, lto: bool) -> bool:
        """Whether this row is for the situation."""
        if self.lto != "any" and (self.lto == "yes") != lto:
            return False
        if (self.nvjitlink == "present") != (nvjitlink_major is not None):
            return False
        if self.driver == "any":
            return True
        if driver_major is None or nvjitlink_major is None:
            return self.driver == "unknown" and driver_major is None
        return self.driver in _RELATIONS and _RELATIONS[self.driver](driver_major, nvjitlink_major)


@dataclass(frozen=True)
class Policy:
    """A named list of rows; exactly one of them fits each situation."""

    name: str
    summary: str
    rows: tuple[Row, ...]

    @cache  # noqa: B019 (policies live as long as the process)
    def row_for(self, driver_major: int | None, nvjitlink_major: int | None, *, lto: bool) -> Row:
        """Return the one row that fits."""
        fitting = [row for row in self.rows if row.fits(driver_major, nvjitlink_major, lto=lto)]
        if len(fitting) != 1:
            names = ", ".join(repr(row.name) for row in fitting) or "none"
            where = f"driver {driver_major}, nvJitLink {nvjitlink_major}, LTO {lto}"
            raise ValueError(f"policy {self.name!r}: for {where} exactly one row must fit, but these do: {names}")
        return fitting[0]


@cache
def policies() -> dict[str, Policy]:
    """Return every policy of `matrices/dispatch.toml` by name, each checked to be complete and free of overlaps."""
    table = {}
    for name, content in read_matrix("dispatch.toml").items():
        policy = Policy(name, content["summary"], tuple(Row(**row) for row in content["rows"]))
        majors = {version and version.major for version in NVJITLINK_VERSIONS}
        for driver, nvjitlink, lto in product(DRIVER_MAJORS, majors, (False, True)):
            policy.row_for(driver, nvjitlink, lto=lto)
        table[name] = policy
    return table


def policy_named(name: str) -> Policy:
    """Return the policy of a name.

    Raises ValueError if no policy has that name; lists the known ones.
    """
    policy = policies().get(name) if isinstance(name, str) else None
    if policy is None:
        raise ValueError(f"unknown linker policy {name!r}; known: {', '.join(policies())}")
    return policy


@dataclass(frozen=True)
class Decision:
    """The backend for a link and the reason, or the reason why no backend can link."""

    backend: Backend | None  # "driver" or "nvjitlink"; None if the row is an error
    policy: str  # name of the policy
    row: str  # name of its row, or "forced"
    driver: CudaVersion | int | None  # the known version of the driver, or only its major; None if unknown or not asked
    nvjitlink: CudaVersion | None
    inputs_have_ltoir: bool
    lto_requested: bool
    because: str  # the reason, in the words of the row
    error: str = ""
    driver_asked: bool = True  # whether the driver was asked: it is not if its answer would change nothing

    @property
    def found(self) -> str:
        """The versions behind the decision: ``"driver CUDA 13.0, nvJitLink 13.2"``."""
        unknown = "unknown" if self.driver_asked else "not asked"
        driver = unknown if self.driver is None else f"CUDA {self.driver}"
        return f"driver {driver}, nvJitLink {self.nvjitlink or 'none'}"

    @property
    def sentence(self) -> str:
        """The reason in words, with the versions."""
        return f"{self.because} ({self.found})" if self.row != "forced" else self.because

    @property
    def message(self) -> str:
        """The text of the RuntimeError if `backend` is None, else empty."""
        return f"{self.error} (found: {self.found}; policy {self.policy})" if self.error else ""

    def __str__(self) -> str:
        return f"{self.backend or 'error'} by policy {self.policy}, row {self.row!r}: {self.sentence}"


def explain(
    driver: CudaVersion | int | None,
    nvjitlink: tuple[int, int] | None,
    inputs_have_ltoir: bool,
    lto_requested: bool,
    policy: str = DEFAULT_POLICY,
    *,
    driver_asked: bool = True,
) -> Decision:
    """Return the decision of the table, with its reason; a row that is an error is returned, not raised.

    `driver`: CUDA version of the driver, or its major alone; None if unknown.
    `nvjitlink`: ``(major, minor)`` of nvJitLink; None if absent or older than 12.3.
    `inputs_have_ltoir`: some input can only be linked as LTO-IR.
    `lto_requested`: link-time optimization or PTX output was requested.
    `policy`: name of a policy.
    `driver_asked`: False where `driver` is None because its version would change nothing.
    Raises ValueError if the policy does not exist.
    """
    major = driver.major if isinstance(driver, CudaVersion) else driver
    version = None if nvjitlink is None else CudaVersion(*nvjitlink)
    row = policy_named(policy).row_for(major, version and version.major, lto=inputs_have_ltoir or lto_requested)
    return Decision(
        backend=None if row.result == "error" else row.result,
        policy=policy,
        row=row.name,
        driver=driver,
        nvjitlink=version,
        inputs_have_ltoir=inputs_have_ltoir,
        lto_requested=lto_requested,
        because=row.because,
        error=row.message,
        driver_asked=driver_asked,
    )


def choose_backend(
    driver_major: int | None,
    nvjitlink_version: tuple[int, int] | None,
    inputs_have_ltoir: bool,
    lto_requested: bool,
    policy: str = DEFAULT_POLICY,
) -> Backend:
    """Return the backend to take, ``"driver"`` or ``"nvjitlink"``; parameters as in `explain`.

    Raises RuntimeError if the table says that no backend can link this.
    Raises ValueError if the policy does not exist.
    """
    decision = explain(driver_major, nvjitlink_version, inputs_have_ltoir, lto_requested, policy)
    if decision.backend is None:
        raise RuntimeError(decision.message)
    return decision.backend


@cache
def driver_matters(
    nvjitlink: tuple[int, int] | None, inputs_have_ltoir: bool, lto_requested: bool, policy: str = DEFAULT_POLICY
) -> bool:
    """Whether the row depends on the driver's version, so that the driver must be asked."""
    lto = inputs_have_ltoir or lto_requested
    table = policy_named(policy)
    rows = {table.row_for(major, nvjitlink and nvjitlink[0], lto=lto).name for major in DRIVER_MAJORS}
    return len(rows) > 1


@dataclass(frozen=True)
class Case:
    """One concrete situation and what the table says about it."""

    policy: str
    row: str
    driver_major: int | None
    nvjitlink_version: tuple[int, int] | None
    inputs_have_ltoir: bool
    lto_requested: bool
    expected: _Result  # "driver", "nvjitlink" or "error"
    # a part of the error's text that any implementation should have: "nvJitLink is not available" or "matching major
    # versions"; empty if the row is not an error
    message: str = ""

    @property
    def id(self) -> str:
        """A short name for a test: ``driver-13_nvjitlink-12.9_ltoir_lto``."""
        nvjitlink = "none" if self.nvjitlink_version is None else "{}.{}".format(*self.nvjitlink_version)
        parts = [f"driver-{self.driver_major or 'unknown'}", f"nvjitlink-{nvjitlink}"]
        parts += [name for name, on in (("ltoir", self.inputs_have_ltoir), ("lto", self.lto_requested)) if on]
        return "_".join(parts)

    @property
    def arguments(self) -> tuple[int | None, tuple[int, int] | None, bool, bool]:
        """The four arguments of a ``choose_backend``."""
        return self.driver_major, self.nvjitlink_version, self.inputs_have_ltoir, self.lto_requested

    def check(self, choose: Callable[[int | None, tuple[int, int] | None, bool, bool], str]) -> None:
        """Compare an implementation of the table with this case.

        Raises AssertionError if `choose` returns another backend, or does not raise the RuntimeError that the table
        asks for.
        """
        try:
            answer = choose(*self.arguments)
        except RuntimeError as error:
            if self.expected != "error":
                msg = f"{self.id}: expected {self.expected!r} (row {self.row!r}), but it raised {error!r}"
                raise AssertionError(msg) from error
            if self.message not in str(error):
                msg = f"{self.id}: the error must say {self.message!r} (row {self.row!r}), but it says {str(error)!r}"
                raise AssertionError(msg) from error
            return
        if answer != self.expected:
            wanted = f"a RuntimeError that says {self.message!r}" if self.expected == "error" else repr(self.expected)
            raise AssertionError(f"{self.id}: expected {wanted} (row {self.row!r}), got {answer!r}")


_STABLE_WORDS = ("nvJitLink is not available", "matching major versions")


def cases(policy: str = DEFAULT_POLICY) -> Iterator[Case]:
    """Yield every concrete situation that the rows of a policy are for."""
    for row in policy_named(policy).rows:
        for driver, version, ltoir, lto in product(DRIVER_MAJORS, NVJITLINK_VERSIONS, (False, True), (False, True)):
            if not row.fits(driver, version and version.major, lto=ltoir or lto):
                continue
            message = next((words for words in _STABLE_WORDS if words in row.message), "")
            yield Case(policy, row.name, driver, version, ltoir, lto, row.result, message)
