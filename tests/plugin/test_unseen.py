"""A run that is watched makes no call of the driver before its first test does, whatever watches it."""

import json

import pytest

from tests.compiled import compile_c
from tests.nested import BOTH

#: Functions of a driver that answers nothing else; each call leaves a line with its name and process in $CALLS.
FAKE = r"""
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

static void note(const char *name) {
  char line[128];
  int file = open(getenv("CALLS"), O_WRONLY | O_CREAT | O_APPEND, 0666);
  if (write(file, line, snprintf(line, sizeof line, "%s %d\n", name, (int)getpid())) < 0) abort();
  close(file);
}
static int initialized;

int cuDriverGetVersion(int *version) { note(__func__); *version = 12090; return 0; }
int cuInit(unsigned flags) { note(__func__); initialized = 1; return 0; }
int cuDeviceGet(int *device, int number) { note(__func__); *device = number; return initialized ? 0 : 3; }
int cuDeviceGetCount(int *count) { note(__func__); *count = 1; return initialized ? 0 : 3; }
int cuDeviceGetAttribute(int *value, int attribute, int device) {
  note(__func__);
  *value = attribute == 75 ? 8 : 6;
  return initialized ? 0 : 3;
}
int cuCtxGetDevice(int *device) { note(__func__); return 201; }
int cuCtxGetCurrent(void **context) { note(__func__); *context = 0; return initialized ? 0 : 3; }
int cuDevicePrimaryCtxGetState(int device, unsigned *flags, int *active) { note(__func__); *active = 0; return 0; }
int cuGetErrorName(int code, const char **name) { note(__func__); *name = "?"; return 0; }
int cuGetProcAddress_v2(const char *name, void **found, int version, unsigned long long flags, int *status) {
  note(__func__);
  *found = 0;
  return 500;
}
int cuCtxSetCurrent(void *context) { note(__func__); return 0; }
int cuStreamQuery(void *stream) { note(__func__); return 0; }
int cuEventQuery(void *event) { note(__func__); return 0; }
int cuEventDestroy_v2(void *event) { note(__func__); return 0; }
"""
#: The first test looks, the second one loads the driver, the others ask the plugin, and the last one uses it.
SUITE = """
import ctypes, os
import pytest

def calls():
    if not os.path.exists(os.environ["CALLS"]): return []
    with open(os.environ["CALLS"]) as file:
        return [line.split()[0] for line in file if line.split()[1] == str(os.getpid())]

def test_first():
    assert calls() == []
    with open("/proc/self/maps") as file:
        assert "libcuda.so" not in file.read()

def test_loads():
    ctypes.CDLL("libcuda.so.1")

@pytest.mark.cudalink(driver=">=12", arch="sm_86")
def test_marked():
    assert calls() == []

def test_asks(cudalink):
    assert (str(cudalink.driver), cudalink.device_arch) == ("12.9", "sm_86")
    assert calls() == []

def test_looks_up():
    from cuda.pathfinder import load_nvidia_dynamic_lib
    try:
        load_nvidia_dynamic_lib("nvJitLink")
    except RuntimeError as error:  # of the guard rails
        assert "12.9" in str(error)
    assert calls() == []

def test_fails():
    raise RuntimeError("CUDA driver version is insufficient for CUDA runtime version")

def test_uses():
    assert calls() == []
    assert ctypes.CDLL("libcuda.so.1").cuInit(0) == 0
    assert calls() == ["cuInit"]
"""
#: A machine with a GPU, on which contexts are checked for errors that stay; the fake driver opens no device file.
MACHINE = """
from pytest_cudalink.plugin.session import lifecycle
lifecycle._DEVICE_FILES = ("/dev/null",)
"""
#: Every option that lets the plugin look or ask.
ALL = (
    "--cudalink-report=run.jsonl",
    "--junitxml=run.xml",
    "--cudalink-guard-rails=strict",
    "--cudalink-provenance=wheels",
    "--cudalink-require=driver",
    "-vv",
    "-rA",
    "--cudalink-unsupported=skip",
    "--force-backend=driver",
    "-ocudalink_contain=yes",
    "--cudalink-checks=nvjitlink=strict",
)


@pytest.fixture
def real(pytester: pytest.Pytester, run_pytest, monkeypatch):
    """Run the suite with a real driver that keeps a list of its calls."""
    compile_c(pytester.path / "driver" / "libcuda.so.1", FAKE)
    monkeypatch.setenv("LD_LIBRARY_PATH", str(pytester.path / "driver"))
    monkeypatch.setenv("CALLS", str(pytester.path / "calls"))
    pytester.makepyfile(machine=MACHINE, test_suite=SUITE)
    return lambda *options: run_pytest("-p", "machine", "--cudalink-driver=real", *options, fresh=True)


@pytest.mark.parametrize(
    "options",
    [
        pytest.param(ALL, id="all"),
        pytest.param((), id="nothing", marks=pytest.mark.slow),
        pytest.param(("-q", "--force-backend=nvjitlink"), id="what is not in all", marks=pytest.mark.slow),
        pytest.param((*ALL, *BOTH.values[0]), id="both", marks=pytest.mark.slow),
    ],
)
def test_a_real_driver(real, pytester, options: tuple[str, ...]) -> None:
    """The process of the tests neither loads nor calls it, and the record has what another process was answered."""
    real(*options).ended(passed=6, failed=1)
    if "--cudalink-report=run.jsonl" in options:
        start = json.loads((pytester.path / "run.jsonl").read_text().splitlines()[0])
        assert start["versions"]["driver"] == {
            "requested": "real",
            "found": "12.9",
            "source": "cuDriverGetVersion",
            "kind": "real",
        }
        assert start["arch"]["found"] == "sm_86"


def test_a_fault_is_left_to_the_test(run_pytest, pytester) -> None:
    """The first call of a function is the test's: no question of the record meets a fault that waits for it."""
    module = "import ctypes\ndef test(): assert ctypes.CDLL('libcuda.so.1').cuInit(0) == 100\n"
    options = ("--cudalink-driver=13.0", "--cudalink-faults=cuInit:1=100", "--cudalink-report=run.jsonl")
    run_pytest(*options, module=module).ended(passed=1)
    start = json.loads((pytester.path / "run.jsonl").read_text().splitlines()[0])
    assert start["arch"]["found"] == "sm_90"


@pytest.mark.parametrize(
    ("device", "visible", "number"), [("sm_90", "", None), ("sm_86:2", "1", "sm_86"), ("none", None, None)]
)
def test_devices_that_are_hidden(run_pytest, pytester, monkeypatch, device, visible, number) -> None:
    """The record has the device that a test sees."""
    if visible is not None:
        monkeypatch.setenv("CUDA_VISIBLE_DEVICES", visible)
    pytester.makepyfile("def test(): pass")
    run_pytest("--cudalink-driver=13.0", f"--cudalink-device={device}", "--cudalink-report=run.jsonl")
    start = json.loads((pytester.path / "run.jsonl").read_text().splitlines()[0])
    assert start["arch"]["found"] == number
