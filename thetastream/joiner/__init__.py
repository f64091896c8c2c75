"""The unit every model is made of: chained index, probe, store, expire."""
