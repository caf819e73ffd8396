"""CPUs: affinity and quota of this process, NUMA layout, memory errors."""
