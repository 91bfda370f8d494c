"""The findings of ``docs/findings``: their data, and the releases that have each fault."""
