"""What libFuzzer found worth keeping, and the program that feeds the reader with it."""

import re
import zipfile
from collections import Counter
from collections.abc import Iterator

import pytest

from pytest_cudalink.artifacts import Artifact, inspect
from tests.artifacts import fuzz

#: Samples whose damage has kept answers.
DAMAGED = (
    *("12.9/user.cubin", "13.5/user-sm_100.cubin", "13.0/linked.cubin", "13.0/user.ptx", "13.0/user.ltoir"),
    *("nvcc/user-plain.fatbin", "nvcc/user.a", "tile/add-13.5.tileir"),
)


def test_kept_inputs() -> None:
    """Each input of the corpus is answered, and none of them is large."""
    with zipfile.ZipFile(fuzz.CORPUS) as corpus:
        inputs = [corpus.read(name) for name in corpus.namelist()]
    assert len(inputs) > 100
    assert sum(map(len, inputs)) <= fuzz.MOST
    assert all(isinstance(inspect(data), Artifact) for data in inputs)


def answer(image: bytes) -> str:
    """What the reader finds in an image, in one line."""
    found = inspect(image)
    leaves = [(one.describe(), one.compressed, one.relocatable) for one in found.leaves]
    facts = (found.kind, found.needs, found.kernels, found.defined, found.undefined, found.text_sections, leaves)
    return ascii("; ".join(found.problems) or facts)


def damaged(image: bytes) -> Iterator[bytes]:
    """An image, cut short at each place, and with each of its bytes one more and one less."""
    for at in range(len(image)):
        yield image[:at]
        for step in (1, 255):
            yield image[:at] + bytes([(image[at] + step) % 256]) + image[at + 1 :]


def test_answers(samples, as_kept) -> None:
    """The reader's answers are the kept ones: of the corpus, and of damaged samples without their numbers and names."""
    with zipfile.ZipFile(fuzz.CORPUS) as corpus:
        counts = {"corpus": Counter(answer(corpus.read(name)) for name in corpus.namelist())}
    for name in DAMAGED:
        counts[name] = Counter()
        for text, count in Counter(answer(image) for image in damaged(samples[name])).items():
            counts[name][re.sub(r"0x[0-9a-f]+|\d+|[.$][\w.$]+", "#", text)] += count
    lines = (f"{name} {count} {text}\n" for name, found in counts.items() for text, count in sorted(found.items()))
    as_kept(fuzz.SAMPLES.parent / "reader_answers.txt", "".join(lines))


@pytest.mark.weekly
@pytest.mark.slow
def test_the_corpus_under_sanitizers(tmp_path, monkeypatch, capsys) -> None:
    """The fuzzer is built, reads every input of the corpus, and tries some of its own."""
    if reason := fuzz.missing():
        pytest.skip(reason)
    monkeypatch.setattr("sys.argv", ["fuzz", "--runs=3000", f"--keep={tmp_path}"])
    assert fuzz.main() == 0
    assert "inputs" in capsys.readouterr().out


def test_without_clang(monkeypatch, capsys) -> None:
    """Where nothing can be built, the exit code says that nothing was tried, and the reason is printed."""
    monkeypatch.setattr(fuzz.shutil, "which", lambda _: None)
    monkeypatch.setattr("sys.argv", ["fuzz"])
    assert fuzz.main() == fuzz.MISSING == 77
    assert "skipped: needs clang" in capsys.readouterr().out
