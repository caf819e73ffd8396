"""Feed events to the machines and carry out their effects, on asyncio."""
