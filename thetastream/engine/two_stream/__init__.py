"""The engine of two-stream joins: a unit stores tuples and probes the stored tuples of the other stream."""
