"""`bringup bench services`: how fast the coordination services answer, beside jax's client and torch's TCPStore."""
