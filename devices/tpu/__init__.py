"""Google TPUs: found in the file system, brought up through JAX."""
