"""Metrics of running queries, as Spark reports them."""
