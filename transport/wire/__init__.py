"""Messages and their wire form."""
