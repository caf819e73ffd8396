"""How devices come up and how their health is checked; knows nothing of networks."""
