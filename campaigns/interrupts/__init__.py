"""The walk over bytecodes: an exception before each one of a scenario, after which nothing may be left behind.

``nox -s interrupts`` walks all of them.
"""
