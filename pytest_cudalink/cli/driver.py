"""``cudalink driver``."""

import argparse
import ctypes
import errno
import json
import os
import resource
import shutil
import signal
import subprocess
import sys
from collections.abc import Iterable, Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any, Final

from .. import emulator, probes
from ..base.progress import progress
from ..base.safe_text import BLOCK_LIMIT, complain, line
from ..base.words import counted, read_words
from ..compat import names
from ..compat.settings_table import OPTIONS
from ..emulator import Emulation, EmulatorError, notes, preload
from ..emulator.control import violation_of
from ..loader.loads import loaded_file
from ..toolchains import ToolchainError, provide
from .arguments import STDOUT, CommandError, add_verbs, answer, any_path, command_errors, offer, output_file, wrong_file

#: Signals that the command passes on.
_PASSED_ON: Final = frozenset(
    (signal.SIGHUP, signal.SIGINT, signal.SIGQUIT, signal.SIGTERM, signal.SIGUSR1, signal.SIGUSR2)
)
_PR_SET_PDEATHSIG: Final = 1  # linux/prctl.h


def run_program(command: Sequence[str], environment: Mapping[str, str]) -> int:
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


DESCRIPTION: Final = (
    "Run a program on an emulated CUDA driver, or show the driver of this machine. The emulated driver has a CUDA "
    "version of your choice, links for real and needs no GPU; it does not execute kernels."
)

#: Violations that are shown at the end.
_SHOWN: Final = 20
_GIVEN: Final = ("EVENTS", "FAULTS", "LIFETIME")


def configure(parser: argparse.ArgumentParser) -> None:
    """Add the verbs; variables of an emulated driver in the environment are the defaults."""
    given = {name: os.environ.get(f"CUDALINK_EMULATOR_{name}", "") for name in _GIVEN}
    verbs = add_verbs(parser)
    start = verbs.add_parser("run", help="run a program on an emulated driver")
    of_programs: dict[str, dict[str, Any]] = {
        "--version": {"required": True, "metavar": "VERSION"},
        "--faults": {"default": given["FAULTS"]},
        "--checks": {"default": given["LIFETIME"] or "fail", "metavar": "MODE", "type": _checks},
        "--toolchains": {"default": os.environ.get("CUDALINK_TOOLCHAINS") or "auto"},
        "--events": {"default": given["EVENTS"] or None, "type": output_file},
    }
    for option in OPTIONS:
        if (twin := option.program) is not None:
            further = {"metavar": option.metavar, "choices": option.choices or None, **of_programs.get(twin.name, {})}
            action = start.add_argument(twin.name, help=twin.help, **further)
            if twin.name == "--version":
                offer(action, _versions)
    start.add_argument("--release", help="let NVML report this driver release (default: the first of that version)")
    start.add_argument(
        "command", nargs=argparse.REMAINDER, metavar="-- COMMAND", help="run this program with its arguments"
    )
    ask = verbs.add_parser(
        "record",
        help="ask a driver what it answers, and compare",
        description="Ask the driver of this machine, or a stand-in for it, about 300 questions, and show which of "
        "NVIDIA's samples it passes and how its answers differ from those of a recorded driver. Each question runs "
        "in its own process, so a driver that dies or hangs loses one. It needs no network and no compiler.",
    )
    ask.add_argument(
        "--driver",
        type=any_path,
        metavar="FILE",
        help="ask this library, and the libnvidia-ml.so.1 in its folder, instead of the driver of this machine",
    )
    ask.add_argument(
        *("-o", "--output"),
        type=output_file,
        metavar="FILE",
        help="write versions, devices and answers as JSON, without host name, serial number, UUID or address; - is "
        "stdout",
    )
    ask.add_argument("--against", type=any_path, metavar="FILE", help="compare with this recording instead")
    ask.add_argument(
        "--answers", type=any_path, metavar="FILE", help="ask nothing, and grade the answers of this recording"
    )
    ask.add_argument(
        "--seconds", type=float, default=100, metavar="N", help="end after about this time (default: %(default)s)"
    )
    info = verbs.add_parser("info", help="show the driver of this machine, and which drivers can be emulated")
    info.add_argument("--json", action="store_true", help="print JSON")


def run(options: argparse.Namespace) -> int:
    """Run one verb; exit code 2 if it fails, 1 for a lifetime violation, otherwise that of the program."""
    with command_errors(EmulatorError):
        return {"run": _run, "record": _record, "info": _info}[options.verb](options)


def _run(options: argparse.Namespace) -> int:
    command = options.command[1:] if options.command[:1] == ["--"] else options.command
    if not command:
        raise CommandError("no program given; write it after --, such as: -- python script.py", "run")
    program = shutil.which(command[0])
    if program is None:
        raise CommandError(f"there is no program {command[0]!r} on the PATH; correct its name", "run")
    inside = emulator.from_environment(os.environ)
    emulation = emulator.emulation_for(
        options.version,
        release=options.release,
        device=options.device or ("" if inside is None else str(inside.devices)),
        lifetime=options.checks,
        events=_events(options.events),
        faults=options.faults,
    )
    if emulation.lacks and options.toolchains == "never":
        complain(f"cudalink driver run: {emulation.missing}; links will answer 221 until then")
    elif emulation.lacks:
        emulation = _whole(emulation, options.toolchains)
    sys.stdout.flush()
    written = notes.Notes(os.environ.get(notes.VARIABLE, ""))
    try:
        code = run_program(command, {**os.environ, **emulation.environment(), notes.VARIABLE: written.path})
    except OSError as error:
        no_interpreter = error.errno in (errno.ENOEXEC, errno.ENOENT)
        hint = "; a script needs an existing interpreter, in its first line or before it" if no_interpreter else ""
        complain(f"cudalink driver run: {program} cannot be run: {error.strerror}{hint}")
        code = 2
    finally:
        noted = written.end()
    if written.above:
        with suppress(OSError, ValueError):  # the process above has ended
            notes.pass_on(written.above, noted)
    _show_refusals(noted)
    fails = _show_violations(noted) and options.checks != "report"
    return end_like(code) if code else int(fails)


def _record(options: argparse.Namespace) -> int:
    """Ask, write and grade; exit code 1 if a sample that every driver must pass fails."""
    # every `cudalink driver run` would wait for it
    from ..emulator.recorder import grade
    from ..emulator.recorder.record import RecorderError, record

    for name, expected in {"driver": "a library", "against": "a recording", "answers": "a recording"}.items():
        path = getattr(options, name)
        if path and (wrong := wrong_file(path, expected)):
            raise CommandError(f"--{name} {wrong}; correct the path", "record")
    with command_errors(RecorderError, OSError, verb="record"):
        other = grade.read(options.against) if options.against else None
        if options.answers:
            recording = grade.read(options.answers)
        else:
            with progress("asking the driver") as step:
                recording = record(options.driver, options.seconds, step.say)
    # what took minutes to ask is kept first, whatever it is compared with
    if options.output == STDOUT:
        sys.stdout.write(json.dumps(recording) + "\n")
    elif options.output:
        options.output.parent.mkdir(parents=True, exist_ok=True)
        options.output.write_text(json.dumps(recording) + "\n", encoding="utf-8")
    other = other or grade.carried(recording)
    graded = grade.grade(recording, other)
    text = "".join(f"{line(part, BLOCK_LIMIT)}\n" for part in grade.lines(recording, other, graded))
    (sys.stderr if options.output == STDOUT else sys.stdout).write(text)
    return int(bool(graded.failed))


def _show_refusals(noted: Iterable[Mapping[str, Any]]) -> None:
    """Write to stderr each function that was refused because it is not emulated, with the first process that called it.

    `emulator/native/notes.c` has the same words for a program that nothing waits for.
    """
    first = {note["call"]: note for note in reversed(list(noted)) if note.get("unsupported")}
    for function, note in reversed(first.items()):
        complain(
            f"cudalink driver run: process {note['pid']} ({note['command']}): {function} was refused with "
            f"CUDA_ERROR_NOT_SUPPORTED (801): {note['note']}. Run this program on a real driver."
        )


def _show_violations(noted: Iterable[Mapping[str, Any]]) -> bool:
    """Write the violations of the program and its processes to stderr; return whether there are any."""
    violations = [violation_of(note) for note in noted if "violation" in note]
    for violation in violations[:_SHOWN]:
        complain(f"cudalink driver run: {violation}. {violation.fix}")
    if len(violations) > _SHOWN:
        complain(f"cudalink driver run: and {counted(len(violations) - _SHOWN, 'more violation')}")
    return bool(violations)


def _checks(text: str) -> str:
    """Return the mode of the lifetime checks, the only checks of a program; argparse shows the error."""
    try:
        return read_words(text, {"lifetimes": names.CHECK_MODES})["lifetimes"]
    except (KeyError, ValueError) as error:
        raise argparse.ArgumentTypeError(error) from error


def _versions(_options: argparse.Namespace) -> Iterable[object]:
    return emulator.supported_versions()


def _events(file: Path | None) -> Path | None:
    """Return the file of the events for the driver, which runs in another process and perhaps another folder."""
    return Path("/dev/stdout") if file == STDOUT else file and file.absolute()


def _whole(emulation: Emulation, mode: str) -> Emulation:
    """Return the emulation with every nvJitLink that it links with, fetched if the mode is ``"auto"``.

    Raises EmulatorError if one is missing and cannot be fetched.
    """
    if mode == "cached":
        raise EmulatorError(f"--toolchains is cached, and {emulation.missing}")
    try:
        for fetched in provide(emulation.lacks, lambda text: complain(f"cudalink driver run: {text} ...")):
            complain(f"cudalink driver run: {fetched}")
    except ToolchainError as error:
        msg = f"{error}. With --toolchains never the program starts without it, and its links answer 221"
        raise EmulatorError(msg) from error
    return emulator.completed(emulation)


def _info(options: argparse.Namespace) -> int:
    try:
        facts = _facts()
    except OSError as error:  # a libcuda.so.1 that is not a library
        raise CommandError(f"the driver of this machine cannot be opened: {error}", "info") from error
    driver, emulated = facts["driver"], facts["emulator"]
    here = f"CUDA {driver['version']}, {driver['kind']}, {driver['arch'] or 'no device'}, {driver['file']}"
    versions, ready = emulated["versions"], ", ".join(emulated["ready"])
    lines = [
        f"driver: {here if driver['version'] else 'none'}",
        f"can be emulated: CUDA {versions[0]} to {versions[-1]}, {', '.join(emulated['architectures'])}",
        f"with an nvJitLink here to link through: {ready or 'none; run cudalink toolchain add VERSION'}",
    ]
    return answer(facts, lines, as_json=options.json)


def _facts() -> dict[str, Any]:
    version, arch = probes.driver_version(), probes.device_arch()
    versions = emulator.supported_versions()
    return {
        "driver": {
            "version": str(version) if version else None,
            "kind": "emulated" if preload.emulated_driver() else "real" if version else None,
            "arch": arch,
            "file": loaded_file("libcuda.so.1"),
        },
        "emulator": {
            "libraries": str(emulator.library_folder()),
            "versions": [str(release) for release in versions],
            "architectures": list(names.EMULATED_ARCHITECTURES),
            "ready": [str(release) for release in versions if emulator.emulation_for(release).nvjitlink],
        },
    }
