"""Long questions to the package: damage, interrupts, recordings of hardware, suites of others, mutants, releases."""
