"""Families of joins: plan, flow, costs, explanation and identity of each."""
