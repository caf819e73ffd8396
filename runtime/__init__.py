"""The life of a job: what a client does, in the order in which it does it."""
