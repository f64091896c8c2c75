"""Builds the DataFrames of a join: exchange, operator, output and stages."""
