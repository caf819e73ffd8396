"""Simulated devices, for tests and demos: any slice, any fault."""
