"""NVIDIA GPUs, through NVML and the CUDA driver."""
