"""`bringup bench startup`: the time from the release of all clients until the last has come up."""
