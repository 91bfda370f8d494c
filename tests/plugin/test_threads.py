"""Tests that link in several threads, as on free-threaded Python: each link and violation counts once."""

import contextvars
import threading
from collections.abc import Callable

import pytest

from pytest_cudalink.targets import steering
from tests.plugin.test_steering import CONFTEST, LIBRARY

#: What runs a function in eight threads at once, which take turns as often as Python lets them; a test imports it.
EIGHT = """
import sys
import threading

def eight(function):
    barrier, errors = threading.Barrier(8), []
    def work():
        barrier.wait()
        try:
            function()
        except Exception as error:
            errors.append(error)
    interval = sys.getswitchinterval()
    sys.setswitchinterval(1e-6)
    threads = [threading.Thread(target=work) for _ in range(8)]
    for one in threads: one.start()
    for one in threads: one.join()
    sys.setswitchinterval(interval)
    assert not errors, errors[0]
"""


@pytest.fixture
def run(pytester: pytest.Pytester, run_pytest):
    """Run pytest on a library, a target for it, and `EIGHT`."""
    pytester.makepyfile(lib=LIBRARY, eight=EIGHT)
    pytester.makeconftest(f"WORKS = True\n{CONFTEST}")
    given, head = ("--cudalink-driver=13.0", "-p", "no:cacheprovider"), "import pytest\nfrom eight import eight\n"
    return lambda module, *arguments: run_pytest(*given, *arguments, module=head + module)


COUNTS = """
import os, threading, lib
from pytest_cudalink.plugin.run import run_of

def test_links(): eight(lambda: [lib.link() for _ in range(100)])

def test_faults(emulated_driver):
    eight(lambda: [emulated_driver.inject("cuMemAlloc", 2, nth=10**6) for _ in range(8)])
    numbers = [one.number for one in emulated_driver._made]
    assert len(set(numbers)) == 64

def test_forks(request):
    held, done = threading.Event(), threading.Event()
    def hold():
        with run_of(request.config).lock:
            held.set()
            done.wait()
    thread = threading.Thread(target=hold)
    thread.start()
    held.wait()
    child = os.fork()
    if child == 0:
        lib.link()
        os._exit(7)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 7
    done.set()
    thread.join()
"""


@pytest.mark.filterwarnings("ignore:This process .* is multi-threaded:DeprecationWarning")
def test_what_threads_count_at_once(run) -> None:
    """The first links make the ledger, in whichever thread comes first, and no count is lost.

    Each thread gets the number of its own fault, so that all are removed as the test ends. A child that is forked while
    a thread counts has no thread that gives the lock back, and links all the same.
    """
    run(COUNTS, "-W", "ignore").ended(passed=3).shows("lib: 800 links (800 on nvJitLink)")


def test_each_unsteered_link_of_each_thread_counts(run) -> None:
    """A link that no target steers counts once, too, and fails the test as often as it happened where it may not be."""
    module = """
from pytest_cudalink.targets.steering import reported_link
def link():
    for _ in range(50):
        with reported_link("its own", "link", "nvjitlink"):
            pass
def test(): eight(link)
"""
    result = run(module, "--force-backend=driver").ended(failed=1)
    result.shows("*linked on nvJitLink: link of its own*(400 times)*")


def test_violations_of_several_threads_are_expected_once(run, toolkit) -> None:
    """Threads that expect violations at once get each of them once."""
    module = """
from cuda.bindings import nvjitlink
def test(nvjitlink_contract):
    found = []
    def work():
        for _ in range(10):
            handle = nvjitlink.create(1, ["-arch=sm_90"])
            nvjitlink.destroy(handle)
            try:
                nvjitlink.complete(handle)
            except nvjitlink.nvJitLinkError:
                pass
            found.extend(nvjitlink_contract.expect())
    eight(work)
    found.extend(nvjitlink_contract.expect())
    assert len({one.number for one in found}) == len(found) == 80
"""
    run(module, "--cudalink-checks=nvjitlink=strict").ended(passed=1)


def in_thread(function: Callable[[], object]) -> object:
    """Return what a new thread gets from a function, if it starts in a copy of this context, as free-threaded ones."""
    results: list[object] = []
    context = contextvars.copy_context()
    thread = threading.Thread(target=lambda: results.append(context.run(function)))
    thread.start()
    thread.join()
    return results[0]


def test_a_thread_does_not_inherit_who_reports_its_links() -> None:
    """A pool that a linker starts in the middle of a link, and keeps, reports its own links."""
    with steering.covered(), steering.on_behalf_of("another"):
        assert steering.is_covered()
        assert in_thread(steering.is_covered) is False
        assert in_thread(lambda: steering.linking_for("lib")) == "lib"
