"""Give campaigns the fixtures of the tests."""

from tests.conftest import (
    a_second,
    browser,
    clean_choices,
    clean_settings,
    forks,
    kept_programs,
    once,
    pytest_collection_modifyitems,
    pytester,
    run_pytest,
    sample_code,
    samples,
    toolkit,
    wheel,
)

__all__ = [
    "a_second",
    "browser",
    "clean_choices",
    "clean_settings",
    "forks",
    "kept_programs",
    "once",
    "pytest_collection_modifyitems",
    "pytester",
    "run_pytest",
    "sample_code",
    "samples",
    "toolkit",
    "wheel",
]
