"""What a running query tells: health, metrics, logs and traces."""
