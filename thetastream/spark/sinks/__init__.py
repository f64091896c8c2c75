"""Sinks: stores of results, and the log of Spark's file sink."""
