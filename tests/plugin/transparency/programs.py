"""Small programs that ask for the state of a process: a test module that a run has in its folder, and notes answers.

An answer says what a program saw, in values that are equal in any two runs; what depends on a number of a process, an
address or a time is compared within the program. `runs.py` runs them, and compares the answers of runs.
"""

import atexit
import builtins
import contextvars
import ctypes
import faulthandler
import gc
import importlib
import importlib.util
import json
import locale
import logging
import multiprocessing.forkserver
import multiprocessing.resource_tracker
import os
import pickle
import random
import re
import resource
import signal
import subprocess
import sys
import tempfile
import threading
import time
import tracemalloc
import types
import warnings
from concurrent.futures import ProcessPoolExecutor
from pathlib import Path

import pytest

OBSERVERS, PROGRAMS, DRIVER = {}, {}, {}
#: What the run's own command line has beyond that of the run it is compared with.
OURS = json.loads(os.environ["TRANSPARENCY_OURS"])
#: The process that starts the runs.
RUNNER = int(os.environ["TRANSPARENCY_RUNNER"])
local = threading.local()
local.at_import = True


def into(programs):
    """Make a decorator that keeps a function as a program, by its name."""
    return lambda function: programs.setdefault(function.__name__, function)


#: Those that change nothing come first, so that they see nothing of others; then those that do something, and leave
#: nothing behind; then those that need a driver.
observer, program, on_driver = into(OBSERVERS), into(PROGRAMS), into(DRIVER)


def in_a_fork(function):
    """Make a function one of the programs that need a driver, and do that in a forked child."""
    DRIVER[function.__name__] = lambda: forked(function)
    return function


def note(name, kind, answer):
    """Append an answer to the notes of the run; one write is whole, whichever processes write."""
    line = json.dumps([name, kind, answer], default=repr, sort_keys=True) + "\n"
    file = os.open(os.environ["TRANSPARENCY_NOTES"], os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o600)
    os.write(file, line.encode())
    os.close(file)


def without_ours(words):
    """Words of a command line without those that the runs differ by."""
    return [word for word in map(str, words) if word not in OURS]


def forked(function, *arguments):
    """What a function returns in a forked child, and how that ends."""
    read, write = os.pipe()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", DeprecationWarning)  # of other threads, such as those of xdist
        child = os.fork()
    if child == 0:
        try:
            os.write(write, json.dumps(function(*arguments), default=repr).encode())
        finally:
            os._exit(7)
    os.close(write)
    with os.fdopen(read) as stream:
        said = stream.read()
    _, status = os.waitpid(child, 0)
    return [json.loads(said) if said else None, os.waitstatus_to_exitcode(status)]


def started(code, *options, **settings):
    """What a new Python prints, and how it ends."""
    done = subprocess.run(
        [sys.executable, *options, "-c", code], capture_output=True, text=True, check=False, **settings
    )
    return [done.stdout, done.stderr, done.returncode]


def environment():
    """The environment without what the runs use, and what other processes number."""
    own = ("TRANSPARENCY_", "PYTEST_XDIST_TESTRUNUID", "PYTEST_CURRENT_TEST")
    return {name: value for name, value in os.environ.items() if not name.startswith(own)}


def modules():
    """The names of modules that are here, without those of the plugin."""
    return sorted(name for name in sys.modules if not name.startswith("pytest_cudalink"))


# -- processes


PROGRAMS |= {
    "fork": lambda: (
        forked(lambda: [os.getppid() == parent, len(threading.enumerate())]) if (parent := os.getpid()) else None
    ),
    "multiprocessing_fork": lambda: _with_pool("fork"),
    "multiprocessing_forkserver": lambda: _with_pool("forkserver"),
    "multiprocessing_spawn": lambda: _with_pool("spawn"),
    "fault_handler": lambda: [
        faulthandler.is_enabled(),
        started("import faulthandler; print(faulthandler.is_enabled())"),
    ],
    "text_encoding": lambda: [
        locale.getpreferredencoding(do_setlocale=False),
        locale.setlocale(locale.LC_ALL),
        sys.getfilesystemencoding(),
        sys.getdefaultencoding(),
        started("import sys; print(sys.stdout.encoding)")[0],
    ],
    "subprocess_output": lambda: started("import sys; print(sys.path[0] == '', len(sys.argv), sys.flags.utf8_mode)"),
}


@program
def fork_of_a_thread():
    names = []
    thread = threading.Thread(target=lambda: names.append(forked(lambda: threading.current_thread().name)[1]))
    thread.start()
    thread.join()
    return names


def _square(number):
    return [number * number, multiprocessing.current_process().name.partition("-")[0], __name__]


def _with_pool(method):
    with ProcessPoolExecutor(1, mp_context=multiprocessing.get_context(method)) as pool:
        square = pool.submit(_square, 7).result(60)
    multiprocessing.forkserver._forkserver._stop()
    multiprocessing.resource_tracker._resource_tracker._stop()
    return square


OBSERVERS |= {
    "spawned_again": lambda: multiprocessing.get_start_method(allow_none=True),
    "children": lambda: len(Path(f"/proc/self/task/{os.getpid()}/children").read_text(encoding="ascii").split()),
    "parent": lambda: os.getppid() == RUNNER,
    "session_and_group": lambda: [
        os.getsid(0) == os.getsid(RUNNER),
        os.getpgrp() == os.getpgid(RUNNER),
        os.getpriority(os.PRIO_PROCESS, 0),
    ],
    "masks_of_signals": lambda: [
        line
        for line in Path("/proc/self/status").read_text(encoding="ascii").splitlines()
        if line.startswith(("SigBlk", "SigIgn", "SigCgt", "SigPnd", "ShdPnd"))
    ],
    "limits": lambda: {
        name: resource.getrlimit(getattr(resource, name))
        for name in sorted(dir(resource))
        if name.startswith("RLIMIT_")
    },
    "working_folder": lambda: [
        os.path.relpath(Path.cwd(), Path(__file__).parent),
        os.environ.get("PWD") == os.environ.get("OLDPWD"),
    ],
}


@observer
def no_child_of_others():
    try:
        return os.waitpid(-1, os.WNOHANG)
    except ChildProcessError as error:
        return type(error).__name__


@observer
def umask():
    before = os.umask(0o027)
    os.umask(before)
    return before


@observer
def attributes_of_the_process():
    prctl = ctypes.CDLL(None).prctl
    number = ctypes.c_int(-1)
    prctl(2, ctypes.byref(number), 0, 0, 0)  # PR_GET_PDEATHSIG
    signal_of_parent = number.value
    prctl(37, ctypes.byref(number), 0, 0, 0)  # PR_GET_CHILD_SUBREAPER
    personality = ctypes.CDLL(None).personality(0xFFFFFFFF)
    return [prctl(3, 0, 0, 0, 0), signal_of_parent, number.value, personality, len(os.sched_getaffinity(0))]


# -- signals


@observer
def handlers():
    def word(handler):
        return (
            handler if handler is None or isinstance(handler, int) else getattr(handler, "__qualname__", repr(handler))
        )

    return {
        number.name: word(signal.getsignal(number))
        for number in sorted(signal.valid_signals())
        if isinstance(number, signal.Signals)
    }


@program
def sigalrm():
    seen = []
    before = signal.signal(signal.SIGALRM, lambda number, _: seen.append(number))
    signal.setitimer(signal.ITIMER_REAL, 0.01)
    until = time.monotonic() + 30
    while not seen and time.monotonic() < until:
        time.sleep(0.001)
    signal.signal(signal.SIGALRM, before)
    return [len(seen), signal.getitimer(signal.ITIMER_REAL), signal.alarm(0)]


@program
def sigint():
    before = signal.signal(signal.SIGINT, signal.default_int_handler)  # a shell's background job has it ignored
    try:
        os.kill(os.getpid(), signal.SIGINT)
        time.sleep(30)
    except KeyboardInterrupt as error:
        return type(error).__name__
    finally:
        signal.signal(signal.SIGINT, before)


@program
def sigchld():
    seen = []
    before = signal.signal(signal.SIGCHLD, lambda number, _: seen.append(number))
    subprocess.run([sys.executable, "-Sc", ""], check=True)
    signal.signal(signal.SIGCHLD, before)
    return len(seen)


@observer
def wakeup_descriptor():
    before = signal.set_wakeup_fd(-1)
    signal.set_wakeup_fd(before)
    return before


# -- threads


@observer
def threads():
    system = len([*Path("/proc/self/task").iterdir()])
    return [
        sorted(thread.name for thread in threading.enumerate()),
        system,
        threading.current_thread() is threading.main_thread(),
    ]


@program
def thread_locals():
    attributes = []
    thread = threading.Thread(target=lambda: attributes.append(hasattr(local, "at_import")))
    thread.start()
    thread.join()
    return [getattr(local, "at_import", False), attributes, threading.stack_size(), sys.getswitchinterval()]


@observer
def tracing():
    hooks = [sys.gettrace(), sys.getprofile(), threading.gettrace(), threading.getprofile(), sys.getrecursionlimit()]
    if hasattr(sys, "monitoring"):
        hooks += [sys.monitoring.get_tool(number) for number in range(6)]
    return [*hooks, tracemalloc.is_tracing()]


# -- environment and descriptors


OBSERVERS |= {
    "variables": environment,
    "open_files": lambda: sorted(kind for number, kind in _open_files() if number > 2),
    "files_that_children_inherit": lambda: [
        number for number, _ in _open_files() if number > 2 and os.get_inheritable(number)
    ],
    "standard_streams": lambda: [
        [os.isatty(number) for number in range(3)],
        os.path.realpath("/proc/self/fd/0") == "/dev/null",
        [f"{type(stream).__module__}.{type(stream).__name__}" for stream in (sys.stdin, sys.stdout, sys.stderr)],
        [stream.encoding for stream in (sys.stdout, sys.stderr)],
        sys.__stdout__.fileno(),
    ],
    "temporary_folder": lambda: [tempfile.gettempdir(), tempfile.tempdir, tempfile.template],
}


@observer
def variables_of_c():
    libc = ctypes.CDLL(None)
    libc.getenv.restype = ctypes.c_char_p
    return sorted(name for name, value in os.environ.items() if libc.getenv(os.fsencode(name)) != os.fsencode(value))


@observer
def variables_at_the_start():
    began = Path("/proc/self/environ").read_bytes().split(b"\0")
    return sorted(
        name
        for name in (os.fsdecode(variable.partition(b"=")[0]) for variable in began)
        if name and not name.startswith(("TRANSPARENCY_", "PYTEST_"))
    )


@program
def a_variable_set_late():
    os.environ["CUDA_VISIBLE_DEVICES"] = "7"
    printed = started("import os; print(os.environ['CUDA_VISIBLE_DEVICES'])")
    del os.environ["CUDA_VISIBLE_DEVICES"]
    return [printed, os.environ.get("TRANSPARENCY_COUNT"), os.environ.get("LENGTHENED")]


def _open_files():
    files = []
    for file in sorted(Path("/proc/self/fd").iterdir(), key=lambda file: int(file.name)):
        try:
            target = str(file.readlink())
        except OSError:
            continue  # of the list itself
        kind = re.sub(r"\d+", "N", target)
        files.append((int(file.name), kind if kind == "/dev/null" else kind.rpartition("/")[2]))
    return files


# -- Python


OBSERVERS |= {
    "search_path": lambda: sys.path,
    "command_line": lambda: [without_ours(sys.argv), without_ours(sys.orig_argv)],
    "command_line_that_the_system_shows": lambda: without_ours(
        Path("/proc/self/cmdline").read_text(encoding="utf-8").split("\0")
    ),
    "options_of_python": lambda: [
        repr(sys.flags),
        sys.warnoptions,
        sys._xoptions,
        sys.dont_write_bytecode,
        sys.executable,
    ],
    "finders": lambda: [
        [getattr(finder, "__name__", type(finder).__name__) for finder in sys.meta_path],
        [getattr(hook, "__qualname__", repr(hook)) for hook in sys.path_hooks],
    ],
    "imported_modules": modules,
    "modules_of_cuda": lambda: [
        name
        for name in modules()
        if name.partition(".")[0] in ("cuda", "numba", "pynvjitlink", "numpy", "_cffi_backend")
    ],
    "builtin_functions": lambda: [
        sorted(vars(builtins)),
        [type(vars(builtins)[name]).__name__ for name in ("print", "open", "__import__", "exec")],
    ],
    "garbage": lambda: [
        gc.isenabled(),
        gc.get_threshold(),
        gc.get_freeze_count() > 0,
        len(gc.callbacks),
        gc.get_debug(),
        len(gc.garbage),
    ],
    "random_numbers": lambda: [random.random()],  # what follows the seed of the conftest
    "context_variables": lambda: sorted(variable.name for variable in contextvars.copy_context()),
}


@observer
def main_module():
    main = sys.modules["__main__"]
    return [getattr(main, "__file__", None), getattr(main.__spec__, "name", None), main.__name__]


@program
def import_of_a_module():
    before = set(sys.modules)
    import this_is_new

    spec = importlib.util.find_spec("this_is_new")
    again = importlib.reload(this_is_new)
    return [
        type(this_is_new.__loader__).__name__,
        type(spec.loader).__name__,
        again is this_is_new,
        sorted(set(sys.modules) - before),
        pickle.loads(pickle.dumps(this_is_new.function)) is this_is_new.function,
    ]


@program
def odd_modules():
    """A module of a subclass, an object that claims to be a module, and a lazy one are left alone."""
    seen = []

    class Odd(types.ModuleType):
        def __getattribute__(self, name):
            seen.append(name)
            return super().__getattribute__(name)

        def __setattr__(self, name, value):
            seen.append(name)

    class Claims:
        def __getattribute__(self, name):
            seen.append(name)
            if name == "__class__":
                return types.ModuleType
            raise ImportError(name)

    sys.modules["odd"], sys.modules["claims"] = Odd("odd"), Claims()
    seen.clear()
    try:
        for name in ("cuda.pathfinder", "cuda.bindings.nvrtc"):
            if importlib.util.find_spec("cuda") and importlib.util.find_spec(name):
                importlib.import_module(name)
    finally:
        del sys.modules["odd"], sys.modules["claims"]
    return seen


@observer
def spec_of_a_cuda_module():
    """What is found without importing it."""
    if not (importlib.util.find_spec("cuda") and importlib.util.find_spec("cuda.bindings")):
        return None
    spec = importlib.util.find_spec("cuda.bindings.driver")
    return spec and [type(spec.loader).__name__, Path(spec.origin).name.partition(".")[0]]


@observer
def ctypes_itself():
    libc = ctypes.CDLL("libc.so.6")
    return [
        ctypes.CDLL.__module__,
        ctypes.CDLL.__init__.__module__,
        ctypes._dlopen is sys.modules["_ctypes"].dlopen,
        libc._handle == ctypes.CDLL("libc.so.6")._handle,
        type(ctypes.pythonapi).__name__,
        ctypes.get_errno(),
    ]


@program
def cffi_module():
    try:
        import cffi
    except ImportError:
        return None
    library = cffi.FFI()
    library.cdef("int abs(int);")
    return library.dlopen(None).abs(-3)


@program
def filters_of_warnings():
    with warnings.catch_warnings(record=True) as seen:
        warnings.simplefilter("always")
        warnings.warn("one", stacklevel=1)
    return [len(warnings.filters), len(seen), warnings.showwarning.__module__]


@observer
def logging_itself():
    root = logging.getLogger()
    names = sorted(name for name in logging.root.manager.loggerDict if not name.startswith("concurrent"))
    return [
        [type(handler).__name__ for handler in root.handlers],
        root.level,
        root.disabled,
        logging.lastResort is not None,
        names,
    ]


@observer
def hooks_of_python():
    every = (sys.excepthook, sys.unraisablehook, sys.displayhook, sys.breakpointhook, threading.excepthook)
    plain = [getattr(hook, "func", hook) for hook in every]
    return [f"{hook.__module__}.{hook.__qualname__}" for hook in plain]


def _at_exit(number):
    note("atexit_order", "seen", number)


@program
def atexit_order():
    """The first that was registered is called last, while modules and threads are still there."""
    for number in range(3):
        atexit.register(_at_exit, [number, threading.main_thread().is_alive(), _exits.append(number) or [*_exits]])


_exits = []


@observer
def shared_memory_of_python():
    every = [bytes([number]) for number in range(256)]
    names = bytes.__basicsize__ - 1
    content = [ctypes.string_at(id(hook) + names, 2) for hook in every]
    return [content == [bytes([number, 0]) for number in range(256)], len(bytes(0)), len(())]


# -- pytest


@observer
def own_request(request):
    config = request.config
    return [
        str(config.rootpath),
        str(config.inipath),
        str(config.invocation_params.dir),
        without_ours(config.invocation_params.args),
        request.node.nodeid,
        [mark.name for mark in request.node.iter_markers()],
        request.node.user_properties,
        sorted(request.fixturenames),
    ]


OBSERVERS |= {
    "current_test": lambda: (
        os.environ.get("PYTEST_CURRENT_TEST"),
        os.environ.get("PYTEST_XDIST_WORKER"),
        os.environ.get("PYTEST_VERSION"),
    ),
    "options_of_pytest": lambda request: {
        name: value
        for name, value in vars(request.config.option).items()
        if not name.startswith(("cudalink", "plugins", "basetemp", "force_backend", "override_ini"))
    },
    "session_of_pytest": lambda request: [
        len(request.session.items) > 1,
        request.session.testscollected > 1,
        *(request.session.testsfailed, request.session.shouldstop, request.session.shouldfail),
    ],
    "plugins_of_pytest": lambda request: sorted(
        name
        for name, _ in request.config.pluginmanager.list_name_plugin()
        if "cudalink" not in name and not name.isdigit()
    ),
}


# -- the driver


class Driver:
    """The driver through ctypes, opened at the first use."""

    def __init__(self):
        self.library = ctypes.CDLL("libcuda.so.1")

    def __getattr__(self, name):
        return getattr(self.library, name)

    def number(self, name, *arguments):
        """The code of a call, and the number that it writes."""
        number = ctypes.c_int(-1)
        return [getattr(self.library, name)(ctypes.byref(number), *arguments), number.value]

    def pointer(self, name, *arguments):
        """The code of a call, and whether the pointer that it writes is one."""
        pointer = ctypes.c_void_p()
        return [getattr(self.library, name)(ctypes.byref(pointer), *arguments), bool(pointer.value)]


def _state():
    """Everything that asks without changing anything."""
    driver = Driver()
    active, flags = ctypes.c_int(-1), ctypes.c_uint(99)
    primary = driver.cuDevicePrimaryCtxGetState(0, ctypes.byref(flags), ctypes.byref(active))
    return {
        "device": driver.number("cuCtxGetDevice"),
        "context": driver.pointer("cuCtxGetCurrent"),
        "count": driver.number("cuDeviceGetCount"),
        "version": driver.number("cuDriverGetVersion")[0],
        "primary": [primary, active.value if not primary else None, flags.value if not primary else None],
        "name": driver.cuDeviceGetName(ctypes.create_string_buffer(64), 64, 0),
        "total": driver.cuDeviceTotalMem_v2(ctypes.byref(ctypes.c_size_t()), 0),
        "synchronized": driver.cuCtxSynchronize(),
    }


@on_driver
def before_the_first_call():
    """Nothing is initialized, in this process nor in one that it forks, and there that can be done."""
    return [_state(), forked(lambda: [Driver().cuInit(0), _state()])]


DRIVER["of_a_new_process"] = lambda: started(
    "import ctypes; d = ctypes.CDLL('libcuda.so.1'); print(d.cuCtxSynchronize(), d.cuInit(0), d.cuCtxSynchronize())"
)


@in_a_fork
def devices_hidden_late():
    """A variable that is set before cuInit counts, however late that is."""
    os.environ["CUDA_VISIBLE_DEVICES"] = ""
    os.dup2(os.open(os.devnull, os.O_WRONLY), 2)  # where an emulated driver explains why it has none
    driver = Driver()
    return [driver.cuInit(0), driver.number("cuDeviceGetCount")]


@in_a_fork
def contexts():
    """The stack is empty, and the primary context is active exactly while it is retained."""
    driver = Driver()
    driver.cuInit(0)
    context, popped = ctypes.c_void_p(), ctypes.c_void_p()
    codes = [driver.pointer("cuCtxGetCurrent"), driver.cuDevicePrimaryCtxRetain(ctypes.byref(context), 0)]
    codes += [driver.cuCtxPushCurrent_v2(context), driver.number("cuCtxGetDevice")]
    codes += [driver.cuCtxPopCurrent_v2(ctypes.byref(popped)), popped.value == context.value]
    codes += [driver.cuCtxPopCurrent_v2(ctypes.byref(popped)), _state()["primary"]]
    return [*codes, driver.cuDevicePrimaryCtxRelease_v2(0), _state()["primary"]]


@in_a_fork
def contexts_of_threads():
    driver = Driver()
    driver.cuInit(0)
    context = ctypes.c_void_p()
    driver.cuDevicePrimaryCtxRetain(ctypes.byref(context), 0)
    driver.cuCtxSetCurrent(context)
    contexts = []
    thread = threading.Thread(target=lambda: contexts.append(driver.pointer("cuCtxGetCurrent")))
    thread.start()
    thread.join()
    return [contexts, driver.pointer("cuCtxGetCurrent")]


@in_a_fork
def forked_after_initialization():
    """A child of a process that has used the driver cannot use it."""
    driver = Driver()
    driver.cuInit(0)
    return forked(lambda: [driver.cuInit(0), driver.number("cuDeviceGetCount"), driver.cuCtxSynchronize()])


@on_driver
def library():
    """Every way to open the driver opens the same one, whose functions are its own."""
    driver, other = Driver(), ctypes.CDLL("libcuda.so.1", mode=ctypes.RTLD_GLOBAL)
    address = ctypes.c_void_p()
    driver.cuGetProcAddress_v2(b"cuInit", ctypes.byref(address), 12000, ctypes.c_uint64(0), None)
    return [
        driver._handle == other._handle,
        address.value == ctypes.cast(driver.cuInit, ctypes.c_void_p).value,
        ctypes.CDLL(None)._handle != driver._handle,
    ]


@in_a_fork
def bindings():
    try:
        from cuda.bindings import driver, nvrtc
    except ImportError:
        return None
    answers = [int(driver.cuInit(0)[0]), [int(number) for number in driver.cuDeviceGetCount()]]
    error, made = nvrtc.nvrtcCreateProgram(b"__global__ void k() {}", b"", 0, [], [])
    answers += [int(error), int(nvrtc.nvrtcCompileProgram(made, 0, [])[0])]
    _, size = nvrtc.nvrtcGetProgramLogSize(made)
    nvrtc.nvrtcGetProgramLog(made, b" " * size)  # writes into the object that all of Python shares
    name = driver.cuDeviceGetName(64, 0)
    return [*answers, size, int(name[0]), type(driver.cuInit).__name__, type(driver.cuLinkCreate).__name__, b"\0"[0]]


@in_a_fork
def runtime_of_bindings():
    try:
        from cuda.bindings import runtime
    except ImportError:
        return None
    return [int(runtime.cudaGetLastError()[0]), int(runtime.cudaGetDeviceCount()[0]), type(runtime.cudaMalloc).__name__]


@on_driver
def nvml():
    library = ctypes.CDLL("libnvidia-ml.so.1")
    count = ctypes.c_uint(99)
    before = library.nvmlDeviceGetCount_v2(ctypes.byref(count))
    return [before, library.nvmlInit_v2(), library.nvmlDeviceGetCount_v2(ctypes.byref(count)), library.nvmlShutdown()]


@on_driver
def in_this_process():
    """In the process of the tests itself, after every other program."""
    driver = Driver()
    before = [driver.cuInit(0), _state()["context"], _state()["primary"]]
    context = ctypes.c_void_p()
    codes = [driver.cuDevicePrimaryCtxRetain(ctypes.byref(context), 0), driver.cuDevicePrimaryCtxRelease_v2(0)]
    return [before, codes, _state()["context"], _state()["primary"], OBSERVERS["children"]()]


@on_driver
def after_that_test():
    """In the next test: shared processes keep the driver, and nothing else has touched it."""
    return [_state()["context"], _state()["primary"], Driver().cuInit(0)]


# -- the tests


CHOSEN = {**OBSERVERS, **PROGRAMS, **{f"driver_{name}": program for name, program in DRIVER.items()}}
if "TRANSPARENCY_FEW" in os.environ:
    CHOSEN = {name: program for name, program in CHOSEN.items() if name not in PROGRAMS and "new_process" not in name}


@pytest.mark.parametrize("name", CHOSEN)
def test_program(name, request):
    try:
        answer = CHOSEN[name](*[request] * CHOSEN[name].__code__.co_argcount)
    except Exception as error:  # noqa: BLE001 (an answer, too)
        answer = f"{type(error).__name__}: {error}"
    note(name, "seen", answer)


# -- outcomes of tests and what they show


def test_passes():
    print("on standard output: é")
    print("on standard error", file=sys.stderr)
    os.write(1, b"on descriptor 1\n")
    logging.getLogger("of.a.test").warning("a warning of a logger")
    warnings.warn("a warning of a test", stacklevel=1)


def test_fails():
    values = {"é": 1}
    assert values == {"é": 2}


def test_raises():
    raise RuntimeError("of a test")


def test_exits():
    raise SystemExit(3)


def test_skips():
    pytest.skip("for a reason")


@pytest.mark.xfail(reason="known", strict=True)
def test_passes_unexpectedly():
    pass


@pytest.mark.xfail(reason="known")
def test_fails_as_expected():
    raise ValueError


@pytest.fixture
def broken():
    raise LookupError("in a fixture")


def test_setup_fails(broken):
    pass


@pytest.fixture
def broken_at_the_end():
    yield
    raise LookupError("at the end of a fixture")


def test_teardown_fails(broken_at_the_end):
    pass


def test_captures(capsys, caplog, recwarn):
    print("captured")
    logging.getLogger("of.a.test").error("logged")
    assert (capsys.readouterr().out, [record.message for record in caplog.records], len(recwarn)) == (
        "captured\n",
        ["logged"],
        0,
    )


class TestOfUnittest(__import__("unittest").TestCase):
    """A test of unittest, with a subtest."""

    def test_method(self):
        with self.subTest(number=1):
            assert self.id()
