"""Sessions and their workers: settings, Python, class archive, failures."""
