"""What is written down: facts of tests, sums of the run, and the record file."""
