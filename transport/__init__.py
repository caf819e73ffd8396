"""Transport of messages and bytes between peers; knows nothing of jobs, devices or meshes."""
