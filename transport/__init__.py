"""How bytes travel between peers; knows nothing of jobs, devices or meshes."""
