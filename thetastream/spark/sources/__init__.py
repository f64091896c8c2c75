"""Spark data sources: messages of units, control, idle streams and the identity of a query."""
