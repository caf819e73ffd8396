"""jax's interfaces; see `bringup.compat.jax.distributed`. Nothing here needs jax, or loads it."""
