"""What libFuzzer found worth keeping, and the program that feeds the reader with it."""

import zipfile

import pytest

from pytest_cudalink.artifacts import Artifact, inspect
from tests.artifacts import fuzz


def test_kept_inputs() -> None:
    """Each input of the corpus is answered, and none of them is large."""
    with zipfile.ZipFile(fuzz.CORPUS) as corpus:
        inputs = [corpus.read(name) for name in corpus.namelist()]
    assert len(inputs) > 100
    assert sum(map(len, inputs)) <= fuzz.MOST
    assert all(isinstance(inspect(data), Artifact) for data in inputs)


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
