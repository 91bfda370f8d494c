"""The session: what happens once in a run, what the user sees of it, and what xdist's processes hand over."""
