"""C programs on the emulated driver; the sessions valgrind, sanitizers and leaks go on from here."""

import pytest

from pytest_cudalink.base import compiler
from tests.emulator import checkers, locks


@pytest.mark.slow
def test_whole_api_from_c(tmp_path, monkeypatch) -> None:
    """A program built against cuda.h gets the expected answer from every function, with sound and damaged images.

    Threads take the driver's locks in the order of the table.
    """
    flags, source = ("-shared", "-fvisibility=default", "-ldl"), checkers.HERE / "native" / "lock_order.c"
    watcher = compiler.build(compiler.Executable("lock_order.so", (source,), flags=flags), tmp_path)
    monkeypatch.setenv("LD_PRELOAD", str(watcher))
    monkeypatch.setenv("LOCK_ORDER", str(tmp_path / "pairs"))
    assert checkers.plainly(rounds=3) == []  # nor is anything else printed, where nvJitLink would
    pairs = {tuple(map(int, line.split())) for line in (tmp_path / "pairs").read_text().splitlines()}
    assert len(pairs) > 20
    assert list(locks.out_of_order(sorted(pairs))) == []
    backwards = [(taken, held) for held, taken in pairs]
    assert len(list(locks.out_of_order(backwards))) == len(pairs)


@pytest.mark.slow
def test_without_memory(tmp_path) -> None:
    """Whichever allocation of the driver fails, a call says so or is as ever, and is as ever when there is memory."""
    assert (
        checkers.trouble(checkers.run([checkers.compile_program("out_of_memory", tmp_path), checkers.ARTIFACTS])) == []
    )


def test_table_of_locks() -> None:
    """The table has every lock that there is, and no other."""
    assert locks.defined() == locks.table().keys()


def test_damaged_images() -> None:
    """Whatever is changed in an image, reading it never ends in our code by a signal."""
    assert checkers.fuzz(rounds=40) == []


@pytest.mark.slow
def test_links_leave_nothing() -> None:
    """Links through the driver leave no more memory behind than links made directly on the same libnvJitLink."""
    assert checkers.leaks(rounds=4000) == []


@pytest.mark.slow
def test_a_lost_block_is_seen() -> None:
    """The same comparison fails where every third link loses the smallest block that there is."""
    (problem,) = checkers.leaks(rounds=4000, mode="losing")
    assert problem.startswith("the driver kept ")


def test_objects_leave_nothing() -> None:
    """Pools, virtual memory, IPC handles, arrays and graphs leave nothing of what a process can hold."""
    assert checkers.object_leaks(rounds=200) == []


def test_a_lost_object_is_seen() -> None:
    """The same check fails where each round keeps physical memory of 2 MiB."""
    assert any("bytes of the device" in problem for problem in checkers.object_leaks(rounds=200, mode="losing-objects"))


@pytest.mark.parametrize(("scenario", "dies"), checkers.SCENARIOS.items())
def test_lifetimes_from_c(scenario: str, dies: bool, once) -> None:
    """The emulated driver notices each way in which option memory can die too early, and nothing else."""
    program = once("lifetimes", lambda folder: checkers.compile_program("lifetimes", folder)) / "lifetimes"
    command = [program, scenario, checkers.ARTIFACTS / "13.0" / "main.ptx"]
    done = checkers.run(command, env={"MALLOC_PERTURB_": "165"})
    assert done.returncode == 0, done.stderr
    assert bool(int(done.stdout)) is dies
