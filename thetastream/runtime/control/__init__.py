"""The control plane: what may change while a query runs, as pure values and functions."""
