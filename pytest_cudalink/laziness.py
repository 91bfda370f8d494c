"""Attributes that are computed once, at their first use."""

from __future__ import annotations

import functools
from collections.abc import Callable
from contextlib import nullcontext
from typing import Any, TypeVar

__all__ = ["cached_property"]

T = TypeVar("T")


class cached_property(functools.cached_property[T]):  # noqa: N801 (as the one of functools)
    """That of functools without the lock of Python 3.11, which a forked child can find held by another thread."""

    def __init__(self, func: Callable[[Any], T]) -> None:
        super().__init__(func)
        self.lock = nullcontext()
