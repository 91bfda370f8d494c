"""Campaigns of damaged records: mutated record files, saved reports and files of cells through the real commands.

``nox -s mutated-records`` runs them. A campaign fails if a command ends in a traceback, if one of its files is not
valid, or if a damaged file keeps another cell, or itself, out of the report.
"""
