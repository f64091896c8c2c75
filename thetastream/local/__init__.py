"""The same routers, units and indexes in one process, without Spark."""
