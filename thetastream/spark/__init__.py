"""Everything that touches PySpark: the outermost layer of the package."""
