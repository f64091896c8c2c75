"""What the user said, checked: streams, condition, window. Problems are gathered, not raised."""
