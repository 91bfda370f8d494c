"""libnvJitLink, seen from outside: the calls of code below Python, and its contract."""
