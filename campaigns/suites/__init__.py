"""Published test suites on emulated drivers, file by file: ``python -m campaigns.suites --help``."""
