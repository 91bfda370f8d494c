"""Which entry of a fatbin a driver takes: as recorded, and for devices that no recording has."""

import json
import shutil
from pathlib import Path
from typing import Any

import pytest

from campaigns.conformance.fatbin_record import CASES, fatbin
from pytest_cudalink import emulator

HERE = Path(__file__).parent
RECORDED = sorted((HERE.parents[1] / "campaigns" / "conformance" / "recorded").glob("fatbins-*.json"))


#: By NVIDIA's rules of binary compatibility; there is no recording of these devices.
OTHER_DEVICES = [
    ("sm_89", "cubin80 cubin86", "0 cubin86"),
    ("sm_89", "cubin86 cubin80 cubin89", "0 cubin89"),
    ("sm_86", "cubin89 cubin80", "0 cubin80"),
    ("sm_80", "cubin86 cubin89", "209"),
    ("sm_100", "cubin90a cubin90 ptx90", "0 ptx90"),
    ("sm_100", "cubin100 ptx90", "0 cubin100"),
    ("sm_100", "ptx100f ptx90", "0 ptx100f"),
    ("sm_120", "ptx100f", "209"),
    ("sm_120", "ptx100f ptx90", "0 ptx90"),
    ("sm_75", "cubin75 ptx75 cubin80", "0 cubin75"),
    ("sm_75", "ptx80 ptx75", "0 ptx75"),
]


def differing(recorded: dict[str, Any], answered: dict[str, Any]) -> list[str]:
    """What the emulated driver answers otherwise; where the real one crashed, any error will do."""
    faults = []
    for variables, cases in recorded["answers"].items():
        assert cases.keys() == answered["answers"][variables].keys()
        for case, questions in cases.items():
            for question, real in questions.items():
                ours = answered["answers"][variables][case][question]
                agree = ours == real or (real[0] == "crash" and ours[0] not in (0, "crash"))
                if not agree:
                    faults.append(f"{variables or 'plain'} {case} ({CASES[case]}) {question}: {real} != {ours}")
    return faults


@pytest.mark.parametrize("recording", RECORDED, ids=lambda path: path.stem)
@pytest.mark.slow
def test_as_recorded(on_driver, tmp_path: Path, recording: Path) -> None:
    """The recording program gets the answers that it got from a real driver."""
    recorded = json.loads(recording.read_text(encoding="utf-8"))
    out = tmp_path / "answers.json"
    program = ("-m", "campaigns.conformance.fatbin_record", str(out))
    done = on_driver(f"{recorded['cuda'] // 1000}.0", *program, device=f"sm_{recorded['arch']}", fresh=True)
    assert done.returncode == 0, done.stderr
    answered = json.loads(out.read_text(encoding="utf-8"))

    assert (answered["cuda"], answered["arch"]) == (recorded["cuda"], recorded["arch"])
    assert not differing(recorded, answered)
    answered["answers"][""]["ptx-90-80"]["module"] = [222]  # a change is seen
    assert differing(recorded, answered) == ["plain ptx-90-80 (ptx90 ptx80) module: [0, 'ptx90'] != [222]"]


@pytest.mark.parametrize(("arch", "entries", "answer"), OTHER_DEVICES)
def test_other_devices(check, arch: str, entries: str, answer: str, tmp_path: Path) -> None:
    """A cubin of the device's major release that is not newer; PTX that is not newer, of a family only within it."""
    image = tmp_path / "image.fatbin"
    image.write_bytes(fatbin(entries))
    program = f"""
start()
code, module = load(Path({str(image)!r}).read_bytes())
print(code, *(name for name in {entries.split()!r} if not code and not function(module, name)[0]))
"""
    out = check(program, "13.0", device=arch)
    assert out.strip() == answer


@pytest.mark.parametrize(("entry", "library"), [("cubin90zstd", "libzstd.so.1"), ("ptx90lz4", "liblz4.so.1")])
def test_without_the_library_that_unpacks(on_driver, tmp_path: Path, entry: str, library: str) -> None:
    """The answer is 801, and an event names the library and what to do."""
    stranger = next((HERE.parent.parent / "pytest_cudalink" / "artifacts" / "lib").glob("*.so"))
    shutil.copy(stranger, tmp_path / library)  # a library of the name without the function
    image, events = tmp_path / "image.fatbin", tmp_path / "events"
    image.write_bytes(fatbin(entry))
    text = f"""
from tests.emulator.cu import *
start()
data = Path({str(image)!r}).read_bytes()
print(load(data)[0], link([(FATBINARY, data)])[0])"""
    folders = f"{tmp_path}:{emulator.emulation_for('13.0').environment()['LD_LIBRARY_PATH']}"
    done = on_driver("13.0", "-c", text, env={"LD_LIBRARY_PATH": folders}, events=events)
    assert done.stdout.strip() == "801 801", done.stderr
    lines = [json.loads(line) for line in events.read_text(encoding="utf-8").splitlines()]
    notes = [line["note"] for line in lines if line.get("unsupported")]
    assert notes
    assert all(library in note and "-no-compress" in note for note in notes)
