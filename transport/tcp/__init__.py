"""Links between peers, over TCP."""
