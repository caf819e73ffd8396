"""One client in this process: its thread, signals, the active slot, and its composition."""
