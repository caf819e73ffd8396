"""A backend in a process of its own, which can be killed when native code hangs."""
