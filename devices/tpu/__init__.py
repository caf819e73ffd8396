"""Google TPUs: found by what the host shows of them, brought up through JAX."""
