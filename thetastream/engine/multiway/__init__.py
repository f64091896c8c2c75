"""The engine of multi-way joins: a node joins partial results hop by hop with the tuples that it stores."""
