"""`bringup bench`: the speed of start-up, failure notices and services on this machine, beside other libraries."""
