"""Campaigns of damaged input: mutated device code through the linker and through the driver API, in child processes.

``nox -s abuse`` runs them. A campaign fails if a child process, which stands for a user's, dies or hangs.
"""
