"""Campaigns of damaged files through the real commands: records, saved reports, cells, and what `skew` measured.

``nox -s mutated-records`` runs them. A campaign fails if a command ends in a traceback, if one of its files is not
valid, or if a damaged file keeps another cell, or itself, out of the report.
"""
