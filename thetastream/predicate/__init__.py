"""The text of a condition, taken apart; the marker for Python predicates."""
