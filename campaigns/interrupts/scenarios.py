"""What is walked: each scenario with what there is outside of it. Runs in a process on an emulated driver."""

import ctypes
import fcntl
import gc
import os
import sys
import tempfile
import types
import warnings
from collections.abc import Callable, Generator, Iterator
from contextlib import contextmanager
from functools import cache, partial
from pathlib import Path
from typing import Any, cast
from unittest.mock import patch

from campaigns.driver import Driver
from pytest_cudalink import probes, toolchains
from pytest_cudalink.base import regular_files
from pytest_cudalink.emulator import preload, worker
from pytest_cudalink.emulator.control import DriverControl
from pytest_cudalink.guardrails import routing
from pytest_cudalink.linker import Linker, LinkerOptions, ObjectCode, Program, ProgramOptions, _linker, policy
from pytest_cudalink.linker.backends import driver as driver_backend
from pytest_cudalink.linker.backends import nvjitlink
from pytest_cudalink.linker.backends.state import LinkState
from pytest_cudalink.loader import imports
from pytest_cudalink.loader.jitlink import jitlink_calls
from pytest_cudalink.plugin import fixtures
from pytest_cudalink.plugin.watch import backends
from pytest_cudalink.report.records import ViolationRecord, Writer
from pytest_cudalink.targets import steering
from pytest_cudalink.targets.base import Backend, BackendChoice, Bundled
from pytest_cudalink.targets.steering import Steering
from pytest_cudalink.toolchains import folders

from .walk import Walk

_Call = Callable[..., Any]
OPTIONS = LinkerOptions(arch="sm_90")
CONTAINED = LinkerOptions(arch="sm_90", contain=True)


@cache
def version() -> str:
    """Return the CUDA release of this environment's nvJitLink, which is also that of the emulated driver."""
    return str(probes.nvjitlink().usable)


# -- what there is outside of a scenario


class Held:
    """What native calls gave and took back: the calls are replaced by functions that count, outside of the walk."""

    def __init__(self) -> None:
        names = ("nvJitLink handles", "worker links", "answers", "programs")
        self.objects: dict[str, list[int]] = {name: [] for name in names}

    def _counted(self, name: str, create: _Call, destroy: _Call, made: _Call, ended: _Call) -> tuple[_Call, _Call]:
        """Return both functions, which count objects: `made` and `ended` find the handle, if there is one."""
        live = self.objects[name]

        def counted_create(*arguments: Any) -> Any:
            result = create(*arguments)
            if handle := made(result, *arguments):
                live.append(handle)
            return result

        def counted_destroy(*arguments: Any) -> Any:
            if handle := ended(*arguments):
                live.remove(handle)
            return destroy(*arguments)

        return counted_create, counted_destroy

    def watch_nvjitlink(self) -> None:
        """Count the handles of nvJitLink."""
        functions = nvjitlink.library(probes.nvjitlink().path or "")
        create, destroy = self._counted(
            "nvJitLink handles",
            *(functions.create, functions.destroy),
            lambda result, where, *_: not result and where._obj.value,
            lambda where: where._obj.value,
        )
        counted = functions._replace(create=create, destroy=destroy)
        nvjitlink.library = cache(lambda _path: counted)

    def watch_worker(self) -> None:
        """Count the links of the worker's client, and answers whose memory is the client's."""
        client, answers = worker.load_client(), self.objects["answers"]
        free = client.lw_free_answer
        opened, closed = self._counted(
            "worker links",
            *(client.lw_open, client.lw_close),
            lambda _result, where, *_: where._obj.value,
            lambda where, _answer: where._obj.value,
        )

        def answered(call: _Call, *arguments: Any) -> None:
            call(*arguments)
            answers.append(id(arguments[-1]._obj))

        def counted_free(answer: Any) -> None:
            free(answer)
            answers[:] = [address for address in answers if address != id(answer._obj)]

        client.lw_open, client.lw_close, client.lw_free_answer = (
            partial(answered, opened),
            partial(answered, closed),
            counted_free,
        )
        client.lw_add, client.lw_complete = partial(answered, client.lw_add), partial(answered, client.lw_complete)

    def watch_nvrtc(self) -> None:
        """Count the programs of NVRTC."""
        from cuda.bindings import nvrtc

        nvrtc.nvrtcCreateProgram, nvrtc.nvrtcDestroyProgram = self._counted(
            "programs",
            *(nvrtc.nvrtcCreateProgram, nvrtc.nvrtcDestroyProgram),
            lambda answer, *_: int(answer[1]),
            int,
        )


HELD = Held()


_driver = cache(Driver)


def _control() -> DriverControl:
    driver = preload.emulated_driver()
    assert driver is not None
    return driver


def _primary_references() -> int:
    """How many there are to the primary context; at least the one that links keep."""
    _driver().made("cuDevicePrimaryCtxRetain", 0)
    _driver().must("cuDevicePrimaryCtxRelease_v2", 0)
    left: int = _control().events(_control().event_count() - 1)[0]["references"]
    return max(left, 1)


@cache
def _locks() -> dict[str, Any]:
    """The locks of the package's modules, by name."""
    kinds = (type(imports._starting), type(_control()._lock))
    locks = {
        f"{name}.{key}": value
        for name, module in list(sys.modules.items())
        if name.startswith("pytest_cudalink")
        for key, value in vars(module).items()
        if isinstance(value, kinds)
    }
    return locks | {"DriverControl._lock": _control()._lock, "guard": routing.process_wide_guard_rails()._lock}


def _is_held(lock: Any) -> bool:
    return bool(lock._is_owned() if hasattr(lock, "_is_owned") else lock.locked())


def look(folder: Path | None = None) -> dict[str, object]:
    """Return what there is."""
    states = [alive for alive in gc.get_objects() if isinstance(alive, LinkState)]
    return {
        "current context": _driver().made("cuCtxGetCurrent"),
        "references to the primary context": _primary_references(),
        "CUlinkStates": _control().live_states,
        "lifetime violations": _control()._count,
        **{name: len(held) for name, held in HELD.objects.items()},
        "open linkers": len(_linker._open_states),
        "locks held": [name for name, lock in _locks().items() if _is_held(lock)]
        + [type(state).__name__ for state in states if _is_held(state.lock)],
        "descriptors": len(list(Path("/proc/self/fd").iterdir())),
        "fakes": (probes.fakes(), len(probes.listeners)),
        "forced": (policy.default_policy(), steering.linking_for("-")),
        "steerings": [id(entered) for entered in steering._stack],
        "finders": [id(finder) for finder in sys.meta_path],
        "environment": dict(os.environ),
        "routed": (routing.present(), id(_found_by_name()), id(_USER.load_nvidia_dynamic_lib)),
        "unfinished files": sorted(map(str, folder.glob("toolchains/.*[!k]"))) if folder else [],
    }


def repair() -> None:
    """Open the locks that are held."""
    for lock in (*_locks().values(), *(alive.lock for alive in gc.get_objects() if isinstance(alive, LinkState))):
        while _is_held(lock):
            lock.release()


def _found_by_name() -> object:
    from cuda import pathfinder

    return pathfinder.load_nvidia_dynamic_lib


# -- links


def _path(name: str) -> Path:
    return Path(__file__).parents[2] / "tests" / "data" / "artifacts" / version() / name


@cache
def _code(name: str) -> ObjectCode:
    kind = name.rpartition(".")[2]
    made: ObjectCode = getattr(ObjectCode, f"from_{kind}")(_path(name).read_bytes(), name=name)
    return made


def link(backend: Backend, options: LinkerOptions = OPTIONS, kind: str = "cubin") -> bytes:
    """Make, link and close a linker, the way of most code."""
    linker = Linker(_code(f"main.{kind}"), _code(f"user.{kind}"), options=options, backend=backend)
    image = linker.link("cubin").code
    linker.close()
    return image


def link_in_block(backend: Backend, options: LinkerOptions = OPTIONS, kind: str = "cubin") -> bytes:
    """Make, link and close a linker in a ``with`` statement."""
    with Linker(_code(f"main.{kind}"), _code(f"user.{kind}"), options=options, backend=backend) as linker:
        image = linker.link("cubin").code
        linker.get_info_log()
        return image


def dropped(backend: Backend, options: LinkerOptions = OPTIONS) -> None:
    """Leave a linker to its finalizer."""
    Linker(_code("main.cubin"), _code("user.cubin"), options=options, backend=backend).link("cubin")


def refused(backend: Backend, options: LinkerOptions = OPTIONS) -> None:
    """Fail in the library: a symbol is not defined."""
    try:
        with Linker(_code("main.cubin"), options=options, backend=backend) as linker:
            linker.link("cubin")
    except RuntimeError:
        return
    raise AssertionError


@cache
def _expected(backend: Backend, *, contained: bool) -> bytes:
    return link(backend, CONTAINED if contained else OPTIONS)


def next_link(backend: Backend = "driver", *, contained: bool = False) -> None:
    """Fail unless a link gives the right image."""
    assert link(backend, CONTAINED if contained else OPTIONS) == _expected(backend, contained=contained)


def other_context() -> None:
    """Link on the driver while another context is current than the one in which the linker was made."""
    first = _driver().made("cuCtxCreate_v2", 0, 0)
    try:
        linker = Linker(_code("main.cubin"), _code("user.cubin"), options=OPTIONS, backend="driver")
        second = _driver().made("cuCtxCreate_v2", 0, 0)
        try:
            linker.link("cubin")
            linker.close()
        finally:
            assert _driver().made("cuCtxGetCurrent") == second, "another context is current"
            linker = None  # type: ignore[assignment]
            gc.collect()
            _driver().must("cuCtxDestroy_v2", second)
    finally:
        _driver().must("cuCtxDestroy_v2", first)


def forget() -> None:
    """Forget what the process knows of its libraries, so that the next link asks again."""
    probes.cache_clear()
    driver_backend._calls_of.cache_clear()
    _linker._decision.cache_clear()


def compile_program() -> None:
    with Program('extern "C" __global__ void f() {}', options=ProgramOptions(arch="sm_90")) as program:
        program.compile("ptx")


def load_codes() -> None:
    """Read object codes from files, and find out what a linker asks of them."""
    for name in ("main.cubin", "user.ptx", "main.ltoir"):
        code = getattr(ObjectCode, f"from_{name.rpartition('.')[2]}")(_path(name))
        assert code.facts.linkable


# -- what a test or a run changes


def fake() -> None:
    """Fake versions, and link on behalf of another target, for a block."""
    with steering.on_behalf_of("another"), probes.fake(driver="12.9", nvjitlink="13.0"):
        assert probes.driver_version() == (12, 9)
    assert probes.fakes() == probes.Fakes()


def steer() -> None:
    """Steer a run, and link in it."""
    events: list[object] = []
    steering = Steering(targets={"bundled": Bundled()}, on_link=events.append)
    try:
        steering.start(BackendChoice())
        steering.force(BackendChoice("driver", "the walk"))
        link_in_block("driver")
        assert len(events) == 1
        steering.stop()
    except BaseException:
        steering.stop()
        raise


def postpone() -> None:
    done: list[int] = []
    cancel = None
    try:
        cancel = imports.postpone(lambda: done.append(1), until=("a_module_that_is_not_there",))
        imports.start_postponed()
        assert done == [1]
    finally:
        if cancel is not None:
            cancel()


@cache
def _steering() -> Steering:
    steering = Steering(targets={"bundled": Bundled()})
    steering.start(BackendChoice())
    return steering


def _use(fixture: Any, use: Callable[[Any], object], *arguments: Any) -> None:
    """Set a fixture up, use it, and tear it down, as pytest does also after a failure."""
    made: Generator[Any] = fixture._get_wrapped_function()(*arguments)
    value = next(made)
    try:
        use(value)
    finally:
        for _ in made:
            raise AssertionError


def fixture_fake_versions() -> None:
    """Fake versions twice in one test."""

    def use(fake: Any) -> None:
        fake(driver="12.9")
        fake(nvjitlink="12.9")

    _use(fixtures.fake_versions, use)


def fixture_linker_factory() -> None:
    """Make two linkers in one test."""

    def use(make: Any) -> None:
        for backend in ("driver", "nvjitlink"):
            make(_code("main.cubin"), _code("user.cubin"), options=OPTIONS, backend=backend).link("cubin")

    _use(fixtures.linker_factory, use)


def fixture_emulated_driver() -> None:
    """Inject faults, and lose the device."""

    def use(emulated: fixtures.EmulatedDriver) -> None:
        emulated.inject("cuDeviceGetName", 2)
        emulated.inject("cuDeviceGetCount", 2, nth=0)
        emulated.lose_device()
        _faults()
        emulated.events("cuDeviceGetCount")

    with warnings.catch_warnings(action="ignore"):
        _use(fixtures.emulated_driver, use, None)


def fixture_force_backend() -> None:
    run = cast("Any", None)
    with (
        patch.object(backends, "steering", lambda _run: _steering()),
        patch.object(fixtures, "_run_of", lambda _config: run),
    ):
        _use(fixtures.force_backend, lambda force: force("driver"), None)


def look_at_fixtures() -> dict[str, object]:
    """Return what the fixtures change."""
    return look() | {"choice": _steering().choice, "faults": _faults()}


def _faults() -> list[int]:
    count = ctypes.c_int()
    return [_driver().do("cuDeviceGetCount", ctypes.byref(count)) for _ in range(2)]


def watch_violations() -> None:
    """Start and stop the driver's reports to Python."""
    control = _control()
    try:
        control.start_watching()
        assert control.violations == ()
    finally:
        control.stop_watching()


_USER = types.ModuleType("user")
_FOUND = _USER.load_nvidia_dynamic_lib = _found_by_name()  # type: ignore[attr-defined]


def guard() -> None:
    """Route cuda.pathfinder through a guard, and back."""
    few = {"user": _USER, "cuda.pathfinder": sys.modules["cuda.pathfinder"]}
    with patch.object(routing, "sys", types.SimpleNamespace(modules=few, getrefcount=sys.getrefcount)):
        try:
            routing.install()
            assert _USER.load_nvidia_dynamic_lib is not _FOUND
            routing.uninstall()
        except BaseException:
            routing.uninstall()
            raise


# -- files

_FOLDER = Path(tempfile.gettempdir())  # set by `walk_of`


def write_records() -> None:
    with Writer(_FOLDER / "records.jsonl", truncate=True) as writer:
        writer.write(ViolationRecord(nodeid=None, text="one"))
        writer.write(ViolationRecord(nodeid=None, text="two"))


def check_records() -> None:
    """Every line is whole, and there is another one."""
    file = _FOLDER / "records.jsonl"
    text = file.read_text() if file.exists() else ""
    assert not text or text.endswith("\n"), "half a line"
    with Writer(file) as writer:
        writer.write(ViolationRecord(nodeid=None, text="three"))
    assert file.read_text() == text + file.read_text()[len(text) :]
    file.unlink()


def write_report() -> None:
    """Write a report over an older one."""
    regular_files.write_whole(_FOLDER / "report.html", "a new report")


def check_report() -> None:
    """The file has one of both reports, and there is no other file."""
    file = _FOLDER / "report.html"
    assert [path.name for path in _FOLDER.iterdir()] == [file.name]
    assert file.read_text() in ("an old report", "a new report")


def begin_report() -> None:
    """Put an older report there."""
    (_FOLDER / "report.html").write_text("an old report")


def hold_lock() -> None:
    """Hold a lock of the cache."""
    with folders.locked(_FOLDER, "walk.lock"):
        pass


def check_lock() -> None:
    """Another descriptor can lock the file at once: the one before is closed."""
    descriptor = os.open(_FOLDER / "walk.lock", os.O_RDWR | os.O_CREAT)
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    finally:
        os.close(descriptor)


def load_before() -> None:
    """Load a library before other modules can, as the plugin does at its start."""
    preload.preload_nvjitlink(Path(probes.nvjitlink().path or ""))
    preload._kept.pop()


def cover() -> None:
    """Make a link that the code around it reports."""
    assert jitlink_calls.start()
    with steering.covered():
        link("nvjitlink")


def check_cover() -> None:
    """The next phase begins as the plugin begins it, and counts the links of this thread again."""
    jitlink_calls.cover(on=False)
    assert not steering.is_covered()
    next_link("nvjitlink")


def _installer(command: list[str], *_: object) -> None:
    """Stand in for uv: lays out what NVIDIA's wheels have."""
    lib = Path(command[command.index("--target") + 1]) / "nvidia" / "cu13" / "lib"
    lib.mkdir(parents=True)
    for name in ("libnvJitLink.so.13", "libnvrtc.so.13", "libcudart.so.13"):
        (lib / name).write_bytes(b"")


def add_toolchain() -> None:
    """Put a toolchain into the cache, and remove it; afterwards, the cache has all or nothing, and this works."""
    with patch.dict(os.environ, CUDALINK_CACHE=str(_FOLDER)), patch.object(toolchains, "run_installer", _installer):
        added = toolchains.add("13.0", installer="uv")
        assert added.library("nvJitLink").exists()
        toolchains.remove("13.0")


# -- all of them

_Parts = tuple[Callable[[], object], ...]
_BACKENDS: tuple[Backend, ...] = ("nvjitlink", "driver")
_LINKS: dict[str, tuple[Callable[..., object], ...]] = {
    "": (link,), "-block": (link_in_block,), "-refused": (refused,), "-dropped": (dropped,),
    "-first": (link_in_block, forget),
}  # fmt: skip


def _on(backend: Backend, run: Callable[[], object], *begin: Callable[[], object]) -> _Parts:
    return run, partial(next_link, backend), *begin


def _contained(run: Callable[[Backend, LinkerOptions], object], *begin: Callable[[], object]) -> _Parts:
    return partial(run, "nvjitlink", CONTAINED), partial(next_link, "nvjitlink", contained=True), *begin


#: What is run, what must work afterwards, and what is called before each run, if anything.
SCENARIOS: dict[str, _Parts] = {
    **{
        f"{backend}{name}": _on(backend, partial(run, backend), *begin)
        for backend in _BACKENDS
        for name, (run, *begin) in _LINKS.items()
    },
    "driver-contexts": _on("driver", other_context),
    "contained": _contained(link_in_block, forget),
    "contained-refused": _contained(refused),
    "contained-dropped": _contained(dropped),
    "program": (compile_program, compile_program),
    "object-codes": (load_codes, load_codes),
    "faking": _on("driver", fake),
    "steering": _on("driver", steer),
    "postponed": _on("driver", postpone),
    "fake_versions": _on("driver", fixture_fake_versions),
    "linker_factory": _on("driver", fixture_linker_factory),
    "emulated_driver": _on("driver", fixture_emulated_driver),
    "force_backend": _on("driver", fixture_force_backend),
    "violations": _on("driver", watch_violations),
    "guard": _on("nvjitlink", guard),
    "records": (write_records, check_records),
    "report": (write_report, check_report, begin_report),
    "lock": (hold_lock, check_lock),
    "preload": _on("nvjitlink", load_before),
    "cover": (cover, check_cover),
    "toolchains": (add_toolchain, add_toolchain),
}


def begin() -> None:
    """Initialize the driver, for `look`."""
    _driver().must("cuInit", 0)


@contextmanager
def walk_of(name: str) -> Iterator[Walk]:
    """Return the walk over a scenario, in a process on an emulated driver."""
    global _FOLDER  # noqa: PLW0603 (one walk in each process)
    run, check, *prepare = SCENARIOS[name]
    begin()
    for watch in (HELD.watch_nvjitlink, HELD.watch_worker, HELD.watch_nvrtc):
        watch()
    sys.unraisablehook = lambda _found: None
    looks: Callable[[], dict[str, object]] = look
    if name in ("fake_versions", "linker_factory", "emulated_driver", "force_backend"):
        _steering()
        looks = look_at_fixtures
    with tempfile.TemporaryDirectory() as folder:
        _FOLDER = Path(folder)
        if name == "toolchains":
            looks = partial(look, _FOLDER)
        yield Walk(run, looks, check, *prepare, repair=repair)
