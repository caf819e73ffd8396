"""`bringup demo`: a job of N clients on this machine, brought up and compared."""
