"""The environment of a run: `facts` reads what this machine has, `requirements` compares it with what a test needs.

Import the two modules by name: `requirements` is pure and loads at start-up, `facts` brings the probes with it.
"""
