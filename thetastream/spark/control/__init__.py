"""The control plane of a running query: its files, the source that folds requests, and the user's handle."""
