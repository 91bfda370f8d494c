"""What happens in a link worker: answers, and every way in which a library can end it."""

import os
import signal
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from pytest_cudalink.emulator import worker
from pytest_cudalink.emulator.worker import WorkerAnswer, WorkerError, WorkerLink
from tests.emulator.worker.fakes import eventually


def linked(library: str, *inputs: bytes) -> WorkerAnswer:
    """The answer of a link's last call."""
    link = WorkerLink(library, ["-arch=sm_90"])
    try:
        for number, data in enumerate(inputs):
            answer = link.add(1, data, b"in%d" % number)
            if answer.end or answer.code:
                return answer
        return link.complete(0)
    finally:
        link.close()


def test_an_image(fake) -> None:
    """Inputs, names and logs arrive, and the image comes back."""
    link = WorkerLink(fake, ["-arch=sm_90"])
    first, second = link.add(1, b"\0one\0", b"a"), link.add(2, b"two", b"b")
    last = link.complete(0)
    link.close()

    assert [first.info_log, second.info_log, last.info_log] == ["a was added\n", "b was added\n", ""]
    assert (last.code, last.fetch_code, last.end, last.image) == (0, 0, "", b"a\0one\0btwo")
    assert link.handle == 0


def test_refusals(fake) -> None:
    """Codes of the library are answers: of its options, of an input, of a target that it lacks."""
    refused = WorkerLink(fake, ["-wrong"])
    assert (refused.handle, refused.answer.code, refused.answer.opening) == (0, 1, True)
    answer = linked(fake, b"!refuse")
    assert (answer.code, answer.error_log, answer.end) == (4, "error   : no\n", "")
    link = WorkerLink(fake, [])
    assert link.complete(2).fetch_code == -1
    link.close()


KILLED = "ended without a word, as by SIGKILL"


def only(workers: Callable[[], list[int]]) -> int:
    """The only worker, as soon as one that answered that it ends has ended."""
    eventually(lambda: len(workers()) == 1)
    (worker,) = workers()
    return worker


#: The signal with which a word ends the library's process, and how the answer says so.
ENDS = {
    **dict.fromkeys(("segv", "overflow"), (signal.SIGSEGV, "ended with signal 11 (SIGSEGV)")),
    "bus": (signal.SIGBUS, "ended with signal 7 (SIGBUS)"),
    "ill": (signal.SIGILL, "ended with signal 4 (SIGILL)"),
    "fpe": (signal.SIGFPE, "ended with signal 8 (SIGFPE)"),
    "abort": (signal.SIGABRT, "ended with signal 6 (SIGABRT)"),
    "exit": (0, "called exit()"),
    # a worker whose memory is overwritten may claim 2**64 - 1 bytes, or 1 TiB: nothing is reserved
    **dict.fromkeys(("kill", *(f"forge{which}{size}" for which in range(4) for size in "mt")), (0, KILLED)),
}


@pytest.mark.parametrize("word", ENDS)
def test_ends(fake, word) -> None:
    """However a library ends its process, at an input or at the end, is an answer; the next link has another worker."""
    for mark in "!" if word.startswith("forge") else "!?":
        answer = linked(fake, b"sound", f"{mark}{word}".encode())
        assert (answer.signal, answer.end) == ENDS[word]
        assert (answer.hung, answer.image) == (False, None)
        assert linked(fake, b"x").image == b"in0x"


def test_options_that_end_it(fake) -> None:
    """A library that dies of its options is an answer, too."""
    link = WorkerLink(fake, ["-crash"])
    assert (link.handle, link.answer.signal) == (0, signal.SIGSEGV)


def test_printed_text(fake, capfd) -> None:
    """A success with `fatal   :` in what is printed is none; other text is passed on, and not to the terminal."""
    for mark in (b"!", b"?"):
        answer = linked(fake, mark + b"fatal")
        assert answer.end == "printed 'fatal   : Internal error: on purpose' and reported success"
        assert answer.image is None
        answer = linked(fake, mark + b"print")
        assert (answer.end, answer.image) == ("", b"in0" + mark + b"print")
    link = WorkerLink(fake, [])
    assert link.add(1, b"!print", b"in").printed == "printed on purpose\n"
    assert link.add(1, b"x", b"in").printed == ""
    link.close()
    assert capfd.readouterr() == ("", "")


@pytest.mark.parametrize("value", ["0", "86401", "-1", "1.5", "soon", "٣"])
def test_wrong_limits(fake, monkeypatch, value) -> None:
    """A limit is a number of seconds."""
    monkeypatch.setenv(worker.TIMEOUT, value)
    with pytest.raises(ValueError, match=rf"CUDALINK_LINK_TIMEOUT is '{value}'; expected 1 to 86400 \(seconds\)"):
        WorkerLink(fake, [])


def test_a_link_survives_another(fake, workers) -> None:
    """A link whose worker dies of another one is repeated; its logs come once."""
    innocent = WorkerLink(fake, ["-arch=sm_90"])
    logs = [innocent.add(1, b"one", b"a").info_log, innocent.add(1, b"!refuse", b"b").info_log]
    first = only(workers)
    assert linked(fake, b"!segv").signal == signal.SIGSEGV
    answer = innocent.add(1, b"two", b"c")
    second = only(workers)
    assert linked(fake, b"?abort").signal == signal.SIGABRT
    last = innocent.complete(0)
    innocent.close()

    assert [*logs, answer.info_log, last.info_log] == ["a was added\n", "b was added\n", "c was added\n", ""]
    assert last.image == b"aonectwo"
    assert first != second


@pytest.mark.parametrize("mark", ["!", "?"])
def test_a_link_after_a_refusal(fake, workers, mark) -> None:
    """A library that dies of an earlier link's refused input costs this one nothing."""
    assert linked(fake, b"!stain").code == 3
    first = only(workers)
    assert linked(fake, b"a", mark.encode() + b"weak").image == b"in0ain1" + mark.encode() + b"weak"
    assert linked(fake, b"!stain").code == 3
    assert linked(fake, b"!segv").signal == signal.SIGSEGV
    assert eventually(lambda: first not in workers())


def test_refusals_that_leave_locks(fake, workers) -> None:
    """Refused PTX needs a new thread, which must not wait for what another refusal left: the worker is replaced."""
    link = WorkerLink(fake, [])
    assert link.add(1, b"!stain", b"a").code == 3
    first = only(workers)
    assert link.add(2, b"!refuse", b"b").code == 4
    assert link.add(2, b"x", b"c").code == 0
    assert link.complete(0).image == b"cx"
    link.close()
    assert eventually(lambda: first not in workers())


def test_the_deadly_input_is_not_repeated(fake) -> None:
    """After the input that ended the worker the link goes on without it."""
    link = WorkerLink(fake, [])
    link.add(1, b"one", b"a")
    assert link.add(1, b"!segv", b"b").signal == signal.SIGSEGV
    assert link.complete(0).image == b"aone"
    link.close()


def has_ended(process: int) -> bool:
    """Whether a process has closed its files: its first thread is a zombie, and it has no other one."""
    folder = Path(f"/proc/{process}")
    try:
        state = (folder / "stat").read_text(encoding="utf-8").rpartition(")")[2].split()[0]
        return state in "ZX" and len(list((folder / "task").iterdir())) == 1
    except OSError:
        return True


def test_a_worker_that_is_killed_between_links(fake, workers) -> None:
    """No link is blamed for it."""
    link = WorkerLink(fake, [])
    link.add(1, b"one", b"a")
    for number in (signal.SIGKILL, signal.SIGSEGV):
        running = only(workers)
        os.kill(running, number)
        assert eventually(lambda running=running: has_ended(running))
        assert link.add(1, b"two", b"b").end == ""
    assert link.complete(0).image == b"aonebtwobtwo"
    link.close()


NO_CHILD = """
import os, signal, sys
from pathlib import Path
from tests.emulator.worker.test_worker import linked

came = []
signal.signal(signal.SIGCHLD, lambda *_: came.append(1))
assert linked(sys.argv[1], b"!segv").signal == signal.SIGSEGV
assert linked(sys.argv[1], b"x").image == b"in0x"
children = [task.read_text() for task in Path("/proc/self/task").glob("*/children")]
assert not any(children), children
try:
    os.waitpid(-1, os.WNOHANG)
except ChildProcessError:
    print("no child", came)
"""


def test_it_is_no_child(fake) -> None:
    """wait() does not see the worker, SIGCHLD does not come, and it is in no process list of this one."""
    command = [sys.executable, "-c", NO_CHILD, fake]  # a process that has no other children
    done = subprocess.run(command, capture_output=True, text=True, check=True, cwd=Path(__file__).parents[3])
    assert done.stdout == "no child []\n"


def test_its_surroundings(fake, workers, monkeypatch) -> None:
    """Its environment, descriptors, session, folder and signals are those that suit it."""
    for name in ("MALLOC_PERTURB_", "LD_PRELOAD", "PYTHONPATH", "CUDALINK_EMULATOR_VERSION"):
        monkeypatch.setenv(name, "165" if name != "LD_PRELOAD" else "")
    own = "/x/pytest_cudalink/emulator/lib"
    monkeypatch.setenv("CUDA_CACHE_DISABLE", "1")
    monkeypatch.setenv("LD_LIBRARY_PATH", f"/a:{own}:/b::{own}/absent")
    ignored = signal.signal(signal.SIGUSR1, signal.SIG_IGN)
    try:
        assert linked(fake, b"x").image == b"in0x"
    finally:
        signal.signal(signal.SIGUSR1, ignored)
    running = only(workers)
    folder = Path(f"/proc/{running}")
    environment = dict(variable.split("=", 1) for variable in (folder / "environ").read_text().split("\0") if variable)
    status = dict(line.split(":\t") for line in (folder / "status").read_text().splitlines() if ":\t" in line)

    assert not {"MALLOC_PERTURB_", "LD_PRELOAD", "PYTHONPATH", "CUDALINK_EMULATOR_VERSION"} & set(environment)
    assert environment["CUDA_CACHE_DISABLE"] == "1"
    assert "/emulator/lib/absent/libcuda.so.1\n" in (folder / "maps").read_text()  # no driver of the machine
    assert environment["HOME"] == os.environ["HOME"]
    assert environment["LD_LIBRARY_PATH"] == "/a:/b:"
    assert sorted(int(path.name) for path in (folder / "fd").iterdir()) == [0, 1, 2, 3, 4]
    assert os.getsid(running) == running
    assert (folder / "cwd").resolve() == Path("/")
    # 32 and 33: its posix_spawn, which Python 3.13 uses, ignores one, and its sigaction refuses both
    of_glibc = 3 << 31
    assert int(status["SigIgn"], 16) & ~of_glibc == int(status["SigBlk"], 16) == 0
    assert (folder / "oom_score_adj").read_text() == "500\n"


def test_large_inputs(fake) -> None:
    """16 MiB arrive and come back."""
    data = os.urandom(1 << 20) * 16
    data = data.replace(b"!", b"_").replace(b"?", b"_")
    assert linked(fake, data).image == b"in0" + data


def test_many_threads(fake, workers) -> None:
    """64 threads link, some of them deadly inputs; each gets its own answer, and there are few workers."""

    def work(number: int) -> list[tuple[bytes | None, int]]:
        answers = []
        for turn in range(10):
            deadly = number % 8 == 0 and turn % 5 == 0
            answer = linked(fake, b"%d" % number, b"!segv" if deadly else b"-%d" % turn)
            answers.append((answer.image, answer.signal))
        return answers

    with ThreadPoolExecutor(64) as pool:
        answers = list(pool.map(work, range(64)))

    for number, turns in enumerate(answers):
        for turn, (image, died) in enumerate(turns):
            if number % 8 == 0 and turn % 5 == 0:
                assert (image, died) == (None, signal.SIGSEGV)
            else:
                assert (image, died) == (b"in0%din1-%d" % (number, turn), 0)
    # one that a signal has just ended may still be on its way out
    assert eventually(lambda: 1 <= len(workers()) <= min(os.cpu_count() or 1, 8)), workers()


def test_links_in_two_threads_do_not_wait(fake, monkeypatch, workers) -> None:
    """While one worker is in a call, another link gets another worker, where there are cores for it."""
    is_alone = os.cpu_count() == 1
    monkeypatch.setenv(worker.TIMEOUT, "1" if is_alone else "60")
    hanging = threading.Thread(target=linked, args=(fake, b"!hang"))
    linked(fake, b"x")
    hanging.start()
    time.sleep(0.1)
    assert linked(fake, b"x").image == b"in0x"
    assert hanging.is_alive() or is_alone
    for running in workers():
        os.kill(running, signal.SIGKILL)
    hanging.join()


def test_more_libraries_than_places(built, tmp_path) -> None:
    """A worker that no link needs makes room for another library."""
    for number in range(40):
        library = tmp_path / f"lib{number}.so"
        library.symlink_to(built)
        assert linked(str(library), b"x").image == b"in0x"


def test_no_library(tmp_path) -> None:
    """A library that is missing, or that is another one, is named with the loader's reason."""
    with pytest.raises(WorkerError, match="cannot open .*missing.so: .*cannot open shared object file"):
        linked(str(tmp_path / "missing.so"), b"x")
    with pytest.raises(WorkerError, match=r"cannot open libc\.so\.6: it lacks functions of nvJitLink"):
        linked("libc.so.6", b"x")


def test_started_by_hand() -> None:
    """The program says what it is for."""
    done = subprocess.run([worker.program()], capture_output=True, text=True, check=False)
    words = "cudalink-link-worker performs links for pytest-cudalink, which starts it\n"
    assert (done.returncode, done.stderr) == (2, words)


def test_without_pidfd(fake, workers, gone) -> None:
    """On a kernel without pidfd_open the worker looks for its parent in /proc."""
    ours, its = socket.socketpair()
    parent = subprocess.Popen([sys.executable, "-c", "import time; time.sleep(60)"])
    script = 'exec 3<&"$1"; exec "$2" "$3" "$4"'
    command = ["bash", "-c", script, "bash", str(its.fileno()), str(worker.program()), fake, str(parent.pid)]
    running = subprocess.Popen(command, pass_fds=[its.fileno()])
    its.close()
    assert eventually(lambda: workers() == [running.pid])
    time.sleep(0.6)  # it looks five times a second
    assert workers() == [running.pid]
    parent.kill()
    parent.wait()
    assert running.wait(60) == 0
    ours.close()
    assert gone()
