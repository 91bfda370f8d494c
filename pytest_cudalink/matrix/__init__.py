"""The matrix: cells of Python, toolkit and driver, read from one file. Imports neither pytest nor CUDA."""

from .cells import Cell, select
from .reading import CellsError, load_cells

__all__ = ["Cell", "CellsError", "load_cells", "select"]
