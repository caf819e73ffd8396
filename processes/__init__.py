"""Child processes: start, guard, signal, hear, and describe their end."""
