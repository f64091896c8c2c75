"""The engine of groups over a join: units fold their matches into local views."""
