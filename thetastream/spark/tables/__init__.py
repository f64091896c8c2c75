"""Tables beside streams: where rows come from, how versions are staged, and how changes are followed."""
