"""A test whose process dies."""

import os
import signal


def test_before(): ...


def test_crash():
    os.kill(os.getpid(), signal.SIGSEGV)


def test_after(): ...
