"""The vocabulary of the core: sides, conditions, keys, windows and blocks.

It imports no Spark and reads no clock.
"""
