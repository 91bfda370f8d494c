"""Random programs over the driver API: made from a seed, recorded on a real driver, replayed on an emulated one."""
