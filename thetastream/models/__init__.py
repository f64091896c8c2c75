"""Models: pure routers. Which unit stores a tuple, which units probe with it."""
