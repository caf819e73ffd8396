"""Barriers: rounds, participants, failures."""
