"""Oracle, stream strategies, faults: for our tests and for those who add a model."""
