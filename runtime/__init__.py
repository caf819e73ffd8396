"""The life of a job, from `initialize()` to `shutdown()`. The modules at this level are the interface of users."""
