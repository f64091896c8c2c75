"""Tables beside streams and batches, beside DuckDB and Spark's own join: ``python -m bench tables``."""
