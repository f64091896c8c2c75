"""The rim: everything that touches PySpark."""
