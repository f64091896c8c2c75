"""Joins made of joins: pipelines, nested joins, and streams with tables."""
