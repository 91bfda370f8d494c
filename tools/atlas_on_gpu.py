"""Measure the atlas's steps of a real driver: ``prepare`` a file here, ``run`` it on a machine with a GPU.

The machine with the GPU needs Python, NumPy and this package on its path; no toolkit, and no network. Every job runs in
a forked child, and a failed kernel ends its child, so that one answer does not change the next.
"""

from __future__ import annotations

import argparse
import ctypes
import json
import os
import sys
import tarfile
import tempfile
from collections.abc import Mapping, Sequence
from dataclasses import asdict
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, Final

from pytest_cudalink.compat import atlas
from pytest_cudalink.compat.atlas import AtlasAnswer
from pytest_cudalink.linker import sample
from tools.make_atlas import NO_KERNEL, answers_of, code_name, run_job, units_of

ARCH: Final = "sm_90"
_EACH: Final = 64
#: The three steps, each with the step of the worker that it begins with.
_STEPS: Final = {"real-driver": "driver", "real-load": "load", "real-run": "run"}


def prepare(folder: Path, measured: Path, file: Path, arch: str = ARCH) -> None:
    """Pack what a GPU machine needs: inputs and linked images, and the questions about them.

    `folder`: what ``python -m tools.make_atlas --folder`` kept.
    `measured`: the ``atlas.json`` of that measurement.
    `file`: the archive to write.
    `arch`: the architecture of the GPU.
    """
    loaded = atlas.atlas_of(json.loads(measured.read_text(encoding="utf-8")))
    questions, names = [], set()
    for question, answer in answers_of(loaded).items():
        if question.arch != arch or question.step != "nvjitlink":
            continue
        producer, kind, same = question.producer, question.kind, question.producer == question.consumer
        image = f"nvjitlink/{question.consumer}/{arch}/{producer}.{kind}"
        inputs = [f"inputs/{producer}/{arch}/{unit}.{kind}" for unit in units_of(kind)]
        not_made = asdict(answer) if answer.status == "not-made" else None
        base = {"kind": kind, "arch": arch, "producer": producer}
        no_image = not_made or (asdict(AtlasAnswer("not-made", text="nvJitLink does not link it")))
        run_it: dict[str, Any] = {**base, "step": "real-run", "consumer": question.consumer}
        questions.append({**run_it, "image": image} if answer.works else {**run_it, "answer": no_image})
        names |= {image} if answer.works else set()
        if same:
            link: dict[str, Any] = {**base, "step": "real-driver", "consumer": ""}
            questions.append({**link, "answer": not_made} if not_made else {**link, "inputs": inputs})
            names |= set() if not_made else set(inputs)
            load: dict[str, Any] = {**base, "step": "real-load", "consumer": ""}
            own = inputs[0] if kind == "linked-cubin" else image
            possible = kind == "linked-cubin" or answer.works
            questions.append({**load, "image": own} if possible else {**load, "answer": no_image})
    file.parent.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory() as temporary, tarfile.open(file, "w:xz") as archive:
        listed = Path(temporary, "questions.json")
        listed.write_text(json.dumps(questions), encoding="utf-8")
        archive.add(listed, "questions.json")
        for name in sorted(names):
            archive.add(folder / name, name)


def run(file: Path, folder: Path) -> dict[str, Any]:
    """Return the answers of the driver and the GPU of this machine to the questions of a prepared file."""
    import numpy  # noqa: ICN001 (only with a GPU)

    with tarfile.open(file) as archive:
        # Python 3.11.2 of Debian 12 does not know the parameter `filter`
        archive.extraction_filter = getattr(tarfile, "data_filter", lambda member, _: member)
        archive.extractall(folder)  # noqa: S202 (what `prepare` wrote; filtered where Python can)
    questions = json.loads((folder / "questions.json").read_text(encoding="utf-8"))
    x = numpy.random.default_rng(1).uniform(-8.0, 8.0, sample.ELEMENTS).astype(numpy.float32)
    x.tofile(folder / "numbers")
    wide = x.astype(numpy.float64)
    expected = numpy.maximum(wide * wide + 3.0 * wide - 1.0, 0.0)

    def wrong(results: Path) -> str:
        y = numpy.fromfile(results, numpy.float32)
        deviation = numpy.abs(y - expected) / (sample.TOLERANCE + sample.TOLERANCE * numpy.abs(expected))
        bad = int(numpy.count_nonzero(~(deviation <= 1.0)))
        return f"{bad} of {y.size} numbers differ from NumPy's" if bad else ""

    open_questions = [number for number, question in enumerate(questions) if "answer" not in question]
    answers = {number: question["answer"] for number, question in enumerate(questions) if "answer" in question}
    jobs = {number: _job(folder, number, questions[number]) for number in open_questions}
    said = _batch(folder, jobs)
    linked = [number for number in said if questions[number]["step"] == "real-driver" and said[number]["ok"]]
    raw = {number: [answer] for number, answer in said.items()}
    # what a driver linked counts when its numbers are right
    for number, answer in _batch(folder, {number: {**jobs[number], "step": "run"} for number in linked}).items():
        raw[number].append(answer)
        said[number] = answer
    for number, answer in said.items():
        answers[number] = asdict(_answer(answer, questions[number]["step"], wrong, Path(jobs[number]["results"])))
    rows = [
        {
            **{key: question[key] for key in ("step", "kind", "arch", "producer", "consumer")},
            "answer": answers[number],
            "said": raw.get(number, []),  # by the libraries, before anything was concluded from it
        }
        for number, question in enumerate(questions)
    ]
    return {**_machine(), "answers": rows}


def _job(folder: Path, number: int, question: Mapping[str, Any]) -> dict[str, Any]:
    return {
        "step": _STEPS[question["step"]],
        "kind": question["kind"],
        "inputs": [str(folder / name) for name in question.get("inputs", ())],
        "image": str(folder / question.get("image", f"linked-{number}")),
        "kernel": sample.KERNEL,
        "numbers": str(folder / "numbers"),
        "results": str(folder / f"results-{number}"),
    }


def _batch(folder: Path, jobs: Mapping[int, dict[str, Any]]) -> dict[int, dict[str, Any]]:
    listed = folder / "jobs.json"
    listed.write_text(json.dumps(list(jobs.values())), encoding="utf-8")
    # compiled code that the driver keeps on disk would answer instead of its compiler
    environment = {"CUDA_CACHE_DISABLE": "1"}
    said = run_job({"step": "batch", "library": "", "jobs": str(listed), "each": _EACH}, environment)
    if not said["ok"]:
        raise RuntimeError(f"the batch ended: {said}")
    return dict(zip(jobs, said["answers"], strict=True))


def _answer(said: Mapping[str, Any], step: str, wrong: Any, results: Path) -> AtlasAnswer:
    if "fault" in said:
        raise RuntimeError(said["fault"])
    if said.get("crashed"):
        return AtlasAnswer("crashed", code=-said["code"], name=said["call"])
    if not said["ok"]:
        call, code = said["call"].removesuffix("_v2"), said["code"]
        if call == "cuModuleGetFunction" and step != "real-load":  # what was linked is not what was asked for
            return AtlasAnswer("wrong", text=NO_KERNEL)
        return AtlasAnswer("refused", call, code, code_name(call, code), said["log"])
    text = "" if step == "real-load" else wrong(results)
    return AtlasAnswer("wrong", text=text) if text else AtlasAnswer("works")


def _machine() -> dict[str, str]:
    """Return what NVML says of the driver and device 0."""
    nvml = ctypes.CDLL("libnvidia-ml.so.1")
    driver, device = ctypes.create_string_buffer(96), ctypes.create_string_buffer(96)
    number, handle = ctypes.c_int(), ctypes.c_void_p()
    for name, arguments in (
        ("nvmlInit_v2", ()),
        ("nvmlSystemGetDriverVersion", (driver, 96)),
        ("nvmlSystemGetCudaDriverVersion_v2", (ctypes.byref(number),)),
        ("nvmlDeviceGetHandleByIndex_v2", (0, ctypes.byref(handle))),
        ("nvmlDeviceGetName", (handle, device, 96)),
    ):
        if code := getattr(nvml, name)(*arguments):
            raise RuntimeError(f"{name} answers {code}; expected 0; run on a machine with an NVIDIA driver and a GPU")
    return {
        "driver": driver.value.decode(),
        "cuda": f"{number.value // 1000}.{number.value % 1000 // 10}",
        "device": device.value.decode(),
        "date": datetime.now(UTC).date().isoformat(),
        "command": "python -m tools.atlas_on_gpu run",
    }


def main(arguments: Sequence[str] | None = None) -> int:
    """Prepare a file, or answer its questions."""
    parser = argparse.ArgumentParser(prog="python -m tools.atlas_on_gpu", description=__doc__.partition("\n")[0])
    commands = parser.add_subparsers(dest="command", required=True)
    first = commands.add_parser("prepare", help="pack inputs and images")
    first.add_argument("folder", type=Path, help="what the measurement kept with --folder")
    first.add_argument("measured", type=Path, help="the atlas.json of that measurement")
    first.add_argument("file", type=Path, help="the archive to write")
    second = commands.add_parser("run", help="answer on this machine")
    second.add_argument("file", type=Path, help="the archive")
    second.add_argument("--out", type=Path, required=True, help="JSON to write")
    options = parser.parse_args(arguments)
    if options.command == "prepare":
        prepare(options.folder, options.measured, options.file)
        return 0
    with tempfile.TemporaryDirectory(prefix="cudalink-real-", dir=os.environ.get("TMPDIR")) as temporary:
        result = run(options.file, Path(temporary))
    answers = result.pop("answers")
    rows = ",\n".join(map(json.dumps, answers))
    options.out.write_text(f'{json.dumps(result)[:-1]}, "answers": [\n{rows}\n]}}\n', encoding="utf-8")
    counts: dict[tuple[str, str], int] = {}
    for answer in answers:
        key = answer["step"], answer["answer"]["status"]
        counts[key] = counts.get(key, 0) + 1
    for (step, status), number in counts.items():
        sys.stdout.write(f"{step} {status} {number}\n")
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
