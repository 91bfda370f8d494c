"""Whether a process has used a real driver, which is known without a call of it."""

from functools import partial
from types import MethodType, SimpleNamespace
from unittest.mock import Mock

import pytest

from pytest_cudalink.loader import contexts


def test_an_error_of_any_context() -> None:
    """A sticky error counts whichever context has it; another one passes."""

    def put(value: int | None, at: int = 0) -> Mock:
        return Mock(side_effect=lambda *given: setattr(given[at]._obj, "value", value) or 0)

    library = Mock(cuCtxGetCurrent=put(None), cuDeviceGetCount=put(2), cuDevicePrimaryCtxGetState=put(1, 2))
    library.cuDevicePrimaryCtxRetain = put(7)
    library.cuCtxSynchronize.side_effect = [2, 719]
    assert contexts.RealContexts(library).ask(60) == 719


def test_a_device_file_that_is_open(monkeypatch, tmp_path) -> None:
    """A driver that is initialized keeps one open; a system that does not list open files says no."""
    monkeypatch.setattr(contexts, "_DEVICES", (str(tmp_path / "nvidia"),))
    assert not contexts.is_used()
    with (tmp_path / "nvidia-uvm").open("w"):
        assert contexts.is_used()
        monkeypatch.setattr(contexts.os, "listdir", Mock(side_effect=OSError))
        assert not contexts.is_used()


@pytest.mark.parametrize(
    ("functions", "used", "expected"),
    [
        (["cudalinkAbsentDriver"], True, None),
        (["cudalinkContextState"], False, partial),
        (["cuCtxGetCurrent"], False, None),
        (["cuCtxGetCurrent"], True, MethodType),
    ],
)
def test_what_can_be_asked(monkeypatch, functions: list[str], used: bool, expected: type | None) -> None:
    """A real driver once it is used, and an emulated one."""
    library = SimpleNamespace(**dict.fromkeys([*functions, "cuStreamQuery", "cuEventQuery"], Mock()))
    library.cuCtxSetCurrent = library.cuEventDestroy_v2 = Mock()
    monkeypatch.setattr("ctypes.CDLL", lambda _: library)
    monkeypatch.setattr(contexts, "is_loaded", lambda: True)
    monkeypatch.setattr(contexts, "is_used", lambda: used)
    question = contexts.question()
    assert question is None if expected is None else isinstance(question, expected)
    monkeypatch.setattr(contexts, "is_loaded", lambda: False)
    assert contexts.question() is None
