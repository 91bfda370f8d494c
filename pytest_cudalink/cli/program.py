"""Runs a program in place of a command that has something left to do when it has ended."""

from __future__ import annotations

import ctypes
import os
import resource
import signal
import subprocess
import sys
from collections.abc import Mapping, Sequence
from contextlib import suppress
from typing import Final

#: Signals that the command passes on.
_PASSED_ON: Final = frozenset(
    (signal.SIGHUP, signal.SIGINT, signal.SIGQUIT, signal.SIGTERM, signal.SIGUSR1, signal.SIGUSR2)
)
_PR_SET_PDEATHSIG: Final = 1  # linux/prctl.h


def run_program(program: str, command: Sequence[str], environment: Mapping[str, str]) -> int:
    """Run a program with this process's files, and return its exit code, negative for a signal.

    A signal that another process sends is passed on; those of the terminal's keys reach the program by themselves. If
    this process is killed, so is the program.

    Raises OSError if it cannot be run.
    """
    awaited = {signal.SIGCHLD, *_PASSED_ON}
    signal.signal(signal.SIGCHLD, signal.SIG_DFL)  # where a parent ignores it, there would be no exit code
    before = signal.pthread_sigmask(signal.SIG_BLOCK, awaited)
    libc = ctypes.CDLL(None)

    def prepare() -> None:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)
        libc.prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)

    try:
        process = subprocess.Popen(  # noqa: S603 (the user's program)
            command,
            executable=program,
            env=environment,
            close_fds=False,
            preexec_fn=prepare,  # noqa: PLW1509 (this process has one thread)
        )
        while process.poll() is None:
            got = signal.sigwaitinfo(awaited)
            if got.si_signo != signal.SIGCHLD and got.si_pid:
                process.send_signal(got.si_signo)
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)
    return process.returncode


def end_like(code: int) -> int:
    """End this process by the signal that ended a program; return the exit code of another one."""
    if code < 0:
        sys.stdout.flush()
        sys.stderr.flush()
        # the program has left a core
        resource.setrlimit(resource.RLIMIT_CORE, (0, resource.getrlimit(resource.RLIMIT_CORE)[1]))
        with suppress(OSError):  # SIGKILL and SIGSTOP
            signal.signal(-code, signal.SIG_DFL)
        os.kill(os.getpid(), -code)
    return code
