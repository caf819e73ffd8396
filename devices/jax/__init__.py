"""Devices through JAX, of any platform."""
