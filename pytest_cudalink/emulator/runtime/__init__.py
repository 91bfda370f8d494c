"""The CUDA runtime on an emulated driver: what ``cuda.bindings.runtime`` asks is answered by the driver."""
