"""Interfaces of other libraries over the active system, for programs that use those libraries."""
