"""OpenCL devices through pyopencl: facts, memory with guard zones, launches, the clock of events."""
