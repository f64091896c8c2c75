"""Messages between units: files that units write, and the source that reads them in the next epoch."""
