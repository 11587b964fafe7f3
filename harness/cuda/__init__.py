"""NVIDIA's driver and TVM's CUDA C on it: what runs on a GPU without TVM."""
