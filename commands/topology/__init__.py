"""`bringup topology`: a slice as a picture, and the cost of a mesh on it."""
