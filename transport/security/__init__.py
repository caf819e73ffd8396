"""Authentication and encryption of all traffic between peers: mutual TLS, from one token of the job or from files."""
