"""Under which conditions tests run: the driver, nvJitLink, forced backends, faults, the cell."""
