"""Test CUDA JIT-link code against every driver and toolkit pair, with or without a GPU.

Importing this package touches no CUDA library; every module that needs one loads it at first use.
"""

from __future__ import annotations

__all__: list[str] = []
