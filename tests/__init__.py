"""The tests: a package, so that the conformance recorder runs as a module."""
