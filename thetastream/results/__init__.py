"""Stores keep results over a log: what all kinds of stores share."""
