"""What runs around a unit: epochs, routing, messages, state, control, idle streams and observation."""
