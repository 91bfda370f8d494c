"""Give campaigns the fixtures of the tests."""

from tests.conftest import (  # noqa: F401 (pytest reads them here)
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
