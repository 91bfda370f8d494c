"""Fixtures of the audit's tests: the stubs, and child processes, as the stubs' tests have them."""

from __future__ import annotations

from tests.stubs.conftest import run, stubs

__all__ = ["run", "stubs"]
