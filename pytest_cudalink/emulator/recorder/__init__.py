"""Questions to a libcuda, real or emulated, and how its answers differ from those of recorded drivers."""
