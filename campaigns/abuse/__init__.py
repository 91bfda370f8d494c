"""Campaigns of damaged input, in child processes: mutated device code through the linker and through the driver API.

Mutated records, saved reports and files of cells go through the real commands.

``nox -s abuse`` runs them. A campaign fails if a child process, which stands for a user's, dies or hangs.
"""
