"""Reads and checks the user's input: streams, condition, window, settings. Problems are collected first."""
