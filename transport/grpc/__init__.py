"""Connections between a peer and the coordinator, over gRPC."""
