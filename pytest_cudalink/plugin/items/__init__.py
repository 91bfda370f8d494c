"""One test: its plan, its phases, and the driver that it lacks."""
