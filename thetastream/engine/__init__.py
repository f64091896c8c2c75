"""Engines: the code that a unit runs in an epoch. Several engines implement one protocol."""
