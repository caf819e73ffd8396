"""Collectives between the clients of a job, over a ring of links: peer i -> peer (i + 1) mod n."""
