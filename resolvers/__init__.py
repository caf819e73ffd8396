"""Cluster resolvers: the clients of a job, read from the cluster that started them."""
