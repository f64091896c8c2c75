"""From a query to a physical plan."""
