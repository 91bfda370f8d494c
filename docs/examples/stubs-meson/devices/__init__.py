"""What CUDA says on this machine, if there is any."""

from ._native import compiler, runtime

__all__ = ["compiler", "runtime"]
