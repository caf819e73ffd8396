"""The devices of whatever platform JAX has."""
