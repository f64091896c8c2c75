"""What commands do with the checkpoint of a job: inspect, clean, rescale."""
