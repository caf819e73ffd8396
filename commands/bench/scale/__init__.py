"""`bringup bench scale`: the cost of jobs by their number of clients."""
