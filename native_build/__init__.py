"""The C sources of each native library, and the headers that are generated for them; the build hook reads this.

It uses nothing but the standard library, because the package is not importable before it is built.
"""
