"""What a client is asked to do, parsed and checked once, at the edge: options, and who the clients of the job are."""
