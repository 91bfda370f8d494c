"""The audit of a wheel: what it needs, what it declares, and whether that is enough."""
