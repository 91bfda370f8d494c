"""The environment of the tests must be one that its own distributions accept."""

from pytest_cudalink.audit.environment import audit_environment


def test_environment_is_sound():
    audit_environment(measure=False).check()
