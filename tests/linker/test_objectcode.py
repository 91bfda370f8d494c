"""Code as a value: what is found out about it, and when."""

import os
import signal
import threading
import warnings

from pytest_cudalink.artifacts import Artifact
from pytest_cudalink.linker import ObjectCode, objectcode

PTX = b".version 8.0\n.target sm_90\n.address_size 64\n"


def test_a_fork_while_another_thread_inspects(monkeypatch) -> None:
    """The child can inspect code, too: it waits for no lock that only a thread of its parent would release."""
    began, go = threading.Event(), threading.Event()
    inspect = objectcode.inspect

    def slow(data: bytes) -> Artifact:
        began.set()
        go.wait()
        return inspect(data)

    monkeypatch.setattr(objectcode, "inspect", slow)
    thread = threading.Thread(target=lambda: ObjectCode.from_ptx(PTX).artifact)
    thread.start()
    began.wait()
    monkeypatch.undo()
    with warnings.catch_warnings(action="ignore"):  # Python warns of a fork beside threads
        child = os.fork()
    if child == 0:
        os._exit(ObjectCode.from_ptx(PTX).artifact.kind != "ptx")
    late = threading.Timer(60, os.kill, (child, signal.SIGKILL))
    late.start()
    assert os.waitpid(child, 0)[1] == 0
    late.cancel()
    go.set()
    thread.join()
