"""Published test suites on emulated drivers, file by file: ``python -m tests.suites --help``."""
