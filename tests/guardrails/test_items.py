"""How items and verdicts read."""

from __future__ import annotations

import pickle
from dataclasses import replace

import pytest

from pytest_cudalink.base.install_command import Command
from pytest_cudalink.guardrails.items import (
    CompatibilityCheckError,
    CompatibilityInsufficientMetadataError,
    DriverCtkCompatibilityError,
    Fact,
    Item,
    Verdict,
    compatible,
    error_of,
)
from pytest_cudalink.versions import CudaVersion

RELEASE = CudaVersion(13, 0)


def item(kind: str, name: str, version: CudaVersion | None = RELEASE) -> Item:
    return Item(kind, name, f"/x/{name}", "site-packages", "ctk", version, "cuda.h")  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("kind", "name", "sentence"),
    [
        ("dynamic-libs", "nvrtc", "the nvrtc library is of CUDA 13.0"),
        ("headers", "cudart", "the cudart headers are of CUDA 13.0"),
        ("static-libs", "cudadevrt", "the cudadevrt static library is of CUDA 13.0"),
        ("bitcode-libs", "device", "the device bitcode library is of CUDA 13.0"),
        ("binaries", "nvcc", "the nvcc binary is of CUDA 13.0"),
        ("artifacts", "a.ltoir", "the a.ltoir artifact is of CUDA 13.0"),
    ],
)
def test_items_have_a_noun(kind: str, name: str, sentence: str) -> None:
    """Headers are many, everything else is one."""
    assert item(kind, name).is_of == sentence
    assert item(kind, name).label == sentence.removeprefix("the ").partition(" is ")[0].partition(" are ")[0]


def test_an_item_says_where_its_release_was_read() -> None:
    """With the path and the search that found it; a release that is not known is called so."""
    words = "nvrtc library at /x/nvrtc (found via site-packages)"
    assert str(item("dynamic-libs", "nvrtc")) == f"{words}; CUDA 13.0: cuda.h"
    assert str(item("dynamic-libs", "nvrtc", None)) == f"{words}; CUDA release unknown: cuda.h"
    assert item("dynamic-libs", "nvrtc").wheel == ""
    fact = Fact(RELEASE, "cuda.h")
    assert (fact.value, fact.given, fact.absent) == (RELEASE, False, False)
    assert fact == Fact(RELEASE, "cuda.h", given=True, absent=True)  # who says so is no part of what is said


def test_a_verdict_names_its_items_rule_and_repair() -> None:
    """One line each; what else would help is the repair where no command is."""
    alone = Verdict("error", "it does not run", kind="driver")
    assert alone.text == "it does not run\n  rule:  driver"
    both = replace(alone, fix=Command(("x",)), otherwise="buy a driver", evidence=("a", "b"))
    assert both.text.splitlines() == [
        "it does not run",
        "  found: a",
        "  found: b",
        "  rule:  driver",
        "  fix:   pip install x",
        "  or:    buy a driver",
    ]
    advice = replace(alone, otherwise="buy a driver")
    assert advice.text.splitlines()[1:] == ["  rule:  driver", "  fix:   buy a driver"]


def test_a_rule_that_holds_has_nothing_to_repair() -> None:
    """Its verdict shows the items that it is about."""
    nvrtc, cudart = item("dynamic-libs", "nvrtc"), item("headers", "cudart")
    verdict = compatible("same-ctk", "both are of CUDA 13.0", nvrtc, cudart)
    assert verdict == Verdict("note", "both are of CUDA 13.0", evidence=(nvrtc, cudart), kind="same-ctk")
    assert verdict.message == "both are of CUDA 13.0"
    assert (verdict.status, verdict.rule, verdict.items) == ("compatible", "same-ctk", (str(nvrtc), str(cudart)))


@pytest.mark.parametrize(
    ("severity", "rule", "kind"),
    [
        ("unknown", "driver", CompatibilityInsufficientMetadataError),
        ("error", "driver", DriverCtkCompatibilityError),
        ("error", "same-ctk", CompatibilityCheckError),
    ],
)
def test_error_of_a_verdict(severity, rule, kind) -> None:
    """Its class says whose fault it is, its text is the verdict's, and another process gets all of it."""
    verdict = Verdict(severity, "why", Command(("x",)), "wait", evidence=("a", "b"), kind=rule)
    error = pickle.loads(pickle.dumps(error_of(verdict)))
    text = f"why\n  found: a\n  found: b\n  rule:  {rule}\n  fix:   pip install x\n  or:    wait"
    assert (type(error), error.verdict, str(error)) == (kind, verdict, text)
