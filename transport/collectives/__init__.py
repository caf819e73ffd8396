"""Collectives between the clients of a job, over the ring of their links, or of a large job over its groups' rings."""
