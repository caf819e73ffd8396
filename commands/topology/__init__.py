"""`bringup topology`: a slice as a picture, and what a mesh on it costs."""

from __future__ import annotations

from .command import topology

__all__ = ["topology"]
