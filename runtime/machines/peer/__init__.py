"""One client's part in the job."""
