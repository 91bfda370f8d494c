"""Workers of processes that fork, execute another program, are interrupted or killed: none is left behind."""

import os
import signal
import subprocess
import time
from pathlib import Path

import pytest

from tests.emulator.worker.fakes import eventually


def finished(process: subprocess.Popen[str], code: int = 0) -> str:
    out, error = process.communicate(timeout=300)
    assert process.returncode == code, error
    return out


def test_fork(child, gone) -> None:
    """A forked child has its own workers, goes on with the links that it inherited, and leaves the parent's alone."""
    program = """
link = WorkerLink(LIBRARY, [])
link.add(1, b"one", b"a")
pid = os.fork()
link.add(1, b"two" if pid else b"three", b"b")
assert link.complete(0).image == (b"aonebtwo" if pid else b"aonebthree")
link.close()
assert linked().image == b"inx"
if not pid:
    os._exit(0)
assert os.waitpid(pid, 0)[1] == 0
assert linked().image == b"inx"
"""
    finished(child(program))
    assert gone()


def test_fork_during_links(child, gone) -> None:
    """Children that are forked while other threads link can link, whatever those held."""
    program = """
over = threading.Event()
def work():
    while not over.is_set():
        linked(b"!segv" if time.time_ns() % 5 == 0 else b"x")
threads = [threading.Thread(target=work) for _ in range(4)]
for thread in threads: thread.start()
for _ in range(30):
    pid = os.fork()
    if not pid:
        signal.alarm(120)
        os._exit(0 if linked().image == b"inx" else 1)
    assert os.waitpid(pid, 0)[1] == 0
over.set()
for thread in threads: thread.join()
"""
    finished(child(program))
    assert gone()


def test_a_child_outlives_its_parent(child, workers, gone) -> None:
    """The parent's worker ends with the parent, although a forked child has copies of its descriptors."""
    program = """
linked()
if not os.fork():
    print(os.getpid(), flush=True)
    time.sleep(60)
"""
    process = child(program)
    kept = int(process.stdout.readline())
    process.wait(60)
    assert gone()
    os.kill(kept, signal.SIGKILL)


def test_exec(child, gone) -> None:
    """After exec() nothing of the worker is left: no process, no descriptor."""
    program = """
linked()
os.execv(sys.executable, [sys.executable, "-c", "import os; print(sorted(map(int, os.listdir('/proc/self/fd'))))"])
"""
    assert finished(child(program)).strip() == "[0, 1, 2, 3]"  # 3 is the folder that is listed
    assert gone()


@pytest.mark.parametrize("data", ["x", "!hang"])
@pytest.mark.parametrize("end", ["kill", "_exit", "daemon"])
def test_ends_of_the_parent(child, workers, gone, data, end) -> None:
    """No worker outlives its parent, not even one whose library hangs."""
    program = f"""
thread = threading.Thread(target=linked, args=({data.encode()!r},), daemon=True)
thread.start()
if {data!r} == "x": thread.join()
time.sleep(0.5)
print("linked", flush=True)
if {end!r} == "kill": time.sleep(60)
if {end!r} == "_exit": os._exit(0)
"""
    process = child(program)
    assert process.stdout.readline() == "linked\n"
    if end == "kill":
        assert eventually(workers)
        process.kill()
    process.wait(60)
    assert gone()


def test_threads_that_link_at_the_end(child, gone) -> None:
    """Daemon threads in the middle of links do not keep the interpreter from its end."""
    program = """
def work():
    while True: linked()
for _ in range(4): threading.Thread(target=work, daemon=True).start()
time.sleep(0.3)
"""
    finished(child(program))
    assert gone()


def test_interrupt(child, gone) -> None:
    """Ctrl-C reaches the program and not its worker: the call is finished, then the handler runs, and links go on."""
    program = """
signal.signal(signal.SIGINT, signal.default_int_handler)  # a shell's job in the background ignores it
linked()
answer = None
try:
    print("ready", flush=True)
    answer = linked(b"!slow")
    time.sleep(60)
except KeyboardInterrupt:
    print("interrupted", answer and answer.end, flush=True)
assert linked().image == b"inx"
"""
    process = child(program, start_new_session=True)
    assert process.stdout.readline() == "ready\n"
    time.sleep(0.2)
    os.killpg(process.pid, signal.SIGINT)
    assert finished(process).startswith("interrupted")
    assert gone()


def test_signals_during_calls(child, gone) -> None:
    """Signals that come in any moment break no call."""
    program = """
count = []
signal.signal(signal.SIGALRM, lambda *_: count.append(1))
signal.setitimer(signal.ITIMER_REAL, 0.0005, 0.0005)
for turn in range(300):
    answer = linked(b"!segv" if turn % 50 == 0 else b"x" * 100_000)
    assert bool(answer.end) == (turn % 50 == 0)
signal.setitimer(signal.ITIMER_REAL, 0)
assert count
"""
    finished(child(program))
    assert gone()


def test_closed_standard_streams(child, gone, tmp_path) -> None:
    """A program without stdin, stdout and stderr links."""
    program = f"""
for fd in range(3): os.close(fd)
assert linked().image == b"inx"
assert linked(b"!segv").signal == signal.SIGSEGV
assert linked(b"!fatal").end
open({str(tmp_path / "done")!r}, "w").close()
"""
    finished(child(program))
    assert (tmp_path / "done").exists()
    assert gone()


def test_no_descriptors(child, gone) -> None:
    """Without a free descriptor a link fails in words; with one it works."""
    program = """
import resource
held = []
try:
    while True: held.append(os.open("/dev/null", os.O_RDONLY))
except OSError: pass
for free in range(6):
    for fd in held[:free]: os.close(fd)
    try:
        print(linked().image)
    except WorkerError as error:
        print("Too many open files" in str(error))
    held = held[free:]
"""
    script = child("import resource\nresource.setrlimit(resource.RLIMIT_NOFILE, (64, 64))\n" + program)
    words = finished(script).split()
    assert words[0] == "True"
    assert words[-1] == "b'inx'"
    assert gone()


def stop(process: int) -> None:
    """Stop a process; each of its threads."""
    os.kill(process, signal.SIGSTOP)
    while not all(" T " in (task / "stat").read_text() for task in Path(f"/proc/{process}/task").iterdir()):
        time.sleep(0.01)


@pytest.mark.slow
def test_a_stopped_worker(child, workers, gone) -> None:
    """A worker that SIGSTOP has stopped is killed where its answer is late, and when its program ends."""
    program = """
print(os.getpid() if linked().image else 0, flush=True)
sys.stdin.readline()
print(linked(), flush=True)
print(linked().image, flush=True)
sys.stdin.readline()
"""
    process = child(program, stdin=subprocess.PIPE, env={**os.environ, "CUDALINK_LINK_TIMEOUT": "1"})
    assert process.stdout.readline()
    (first,) = workers()
    stop(first)
    process.stdin.write("\n")
    process.stdin.flush()
    answer = process.stdout.readline()
    assert "end='did not finish within 1 s', signal=0, hung=True, " in answer, answer
    assert process.stdout.readline() == "b'inx'\n"
    (second,) = workers()
    assert second != first
    stop(second)
    finished(process)
    assert gone()
