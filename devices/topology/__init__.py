"""Coordinates of the devices of a job, and meshes of them with near neighbours. Pure: numpy alone."""
