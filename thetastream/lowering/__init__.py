"""Turns a query into a physical plan, estimates its cost and explains it."""
