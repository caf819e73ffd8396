"""Processors of the machine: what this process may use of them, where they are, and whether their memory holds."""
