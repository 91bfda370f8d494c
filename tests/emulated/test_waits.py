"""Which calls wait for unfinished work: the table, and what the emulated driver makes of it."""

from __future__ import annotations

from typing import Any

import pytest

from pytest_cudalink.emulator import waits
from pytest_cudalink.tables import read_table

__all__ = ()


@pytest.mark.parametrize(
    ("call", "facts", "loading", "waits_for"),
    [
        ("cuMemFree_v2", {"memory": "device"}, "lazy", "context"),
        ("cuMemFree_v2", {"memory": "pool"}, "lazy", ""),
        ("cuMemcpyHtoD_v2_ptds", {"to": "device", "source": "pinned", "size": 64}, "lazy", "legacy"),
        ("cuMemcpyDtoD_v2", {"to": "device", "source": "device", "size": 64}, "lazy", ""),
        ("cuMemcpyAsync_ptsz", {"to": "device", "source": "pageable", "size": 2_097_152}, "lazy", ""),
        ("cuMemcpyAsync_ptsz", {"to": "device", "source": "pageable", "size": 2_097_153}, "lazy", "stream"),
        ("cuCtxSetLimit", {"limit": "CU_LIMIT_STACK_SIZE"}, "lazy", "context"),
        ("cuCtxSetLimit", {"limit": "CU_LIMIT_PRINTF_FIFO_SIZE"}, "lazy", ""),
        ("cuLibraryLoadData", {}, "lazy", ""),
        ("cuLibraryLoadData", {}, "eager", "device"),
        ("cuLaunchKernel", {"first": True}, "lazy", "context"),
        ("cuLaunchKernel", {"first": False}, "lazy", ""),
        ("cuMemAlloc_v2", {}, "lazy", ""),
    ],
)
def test_the_table_says_which_calls_wait(call: str, facts: dict[str, Any], loading: str, waits_for: str) -> None:
    """The arguments of a call decide, and how kernels are loaded."""
    row = waits.table().row_of(call, facts, loading)
    assert (row.waits_for if row else "") == waits_for


def test_the_table_says_whom_a_wait_holds_up() -> None:
    """A copy that waits for its stream lets others submit work, which a free that waits does not."""
    table = waits.table()
    copy = table.row_of("cuMemcpyAsync", {"to": "pageable", "source": "device"})
    free = table.row_of("cuMemFree_v2", {"memory": "device"})
    synchronize = table.row_of("cuCtxSynchronize", {})
    assert copy
    assert free
    assert synchronize
    found = {
        call: [table.holds_up(row, call) for row in (free, copy, synchronize)]
        for call in ("cuMemAlloc_v2", "cuLaunchKernel_ptsz", "cuMemAllocAsync")
    }
    assert found == {
        "cuMemAlloc_v2": [True, True, False],
        "cuLaunchKernel_ptsz": [True, False, False],
        "cuMemAllocAsync": [False, False, False],
    }


def test_each_wait_names_a_call_that_exists_instead() -> None:
    """What a row suggests can be called, by its name in cuda.h."""
    functions = read_table("emulator/functions.toml")["functions"]
    found = {call: row.instead_of(call) for row in waits.table().waits for call in row.calls if row.instead}
    assert found["cuMemcpy2DUnaligned_v2"] == "cuMemcpy2DAsync"
    assert found["cuMemFree_v2"] == "cuMemFreeAsync"
    assert not [name for name in found.values() if name not in functions]


def row(**members: Any) -> dict[str, Any]:
    """A table of one row."""
    whole = {"calls": ["cuMemFree_v2"], "waits_for": "context", "promised": "", **members}
    return {"locks": {"context": ["cuMemAlloc_v2"]}, "wait": [{k: v for k, v in whole.items() if v is not None}]}


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (row(calls=["cuMemFre_v2"]), "there is no call 'cuMemFre_v2'; did you mean 'cuMemFree_v2'?"),
        (row(waits_fro="context"), "there is no member 'waits_fro'; did you mean 'waits_for'?"),
        (row(waits_for="contexts"), "there is no value of 'waits_for' 'contexts'; did you mean 'context'?"),
        (row(promised=None), "a row of cuMemFree_v2 has no 'promised'; add it"),
        (row(given={"memroy": ["device"]}), "there is no condition 'memroy'; did you mean 'memory'?"),
        (row(given={"memory": ["devise"]}), "there is no kind of memory 'devise'; did you mean 'device'?"),
        (row(given={"first": 1}), "the condition 'first' is 1; expected a value of type bool"),
        (row(given={"limit": "CU_LIMIT_STACK"}), "there is no limit 'CU_LIMIT_STACK'; did you mean"),
        (row(loading="lasy"), "there is no value of 'loading' 'lasy'; did you mean 'lazy'?"),
        (row(holds=["contexts"]), "there is no lock 'contexts'; did you mean 'context'?"),
        (row(instead="cuMemFreeAsync2"), "there is no call 'cuMemFreeAsync2'; did you mean 'cuMemFreeAsync'?"),
        ({"locks": {}, "waits": []}, "there is no member 'waits'; did you mean 'wait'?"),
    ],
)
def test_a_wrong_row_is_refused(content: dict[str, Any], message: str) -> None:
    """The message names the nearest word that is known."""
    with pytest.raises(ValueError, match="there is no|has no|the condition") as caught:
        waits.read_waits(content)
    assert message in str(caught.value)
