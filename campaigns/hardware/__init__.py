"""Everything that needs a real driver, in stages, with a file and a page of results for each driver and device."""
