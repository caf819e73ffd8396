"""Device backends: bring-up and health checks. Knows nothing of networks."""
