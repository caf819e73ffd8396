"""`bringup bench failure`: the time from a fault until every survivor is told."""
