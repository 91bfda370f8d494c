"""The parts of ``benchmarks/jit_lto.py``: kernels, their units, libraries, the device, and the page."""
