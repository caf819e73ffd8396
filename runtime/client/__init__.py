"""One client in this process: its life, its thread and signals, and its composition."""
