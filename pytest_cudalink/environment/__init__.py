"""What is installed, how the loader searches, and what a test needs: the files of an environment, of which none runs.

Import the modules by name: `requirements` and `wheels` load at start-up.
"""
