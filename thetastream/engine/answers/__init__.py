"""The engine of outer, semi and anti joins: one answer for each tuple of a preserved stream."""
