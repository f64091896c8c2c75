"""Programs around a join: the command line, jobs and the demo."""
