"""Where the devices of a job are, and meshes of them whose neighbours are near. Pure: numpy, and no world around it."""
