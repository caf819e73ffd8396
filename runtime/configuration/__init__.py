"""Options, and the clients of the job: read from arguments and environment and checked once, before all else."""
