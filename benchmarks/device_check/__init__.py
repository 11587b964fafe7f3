"""Everything about the Triton kernels that only a GPU can tell, in one short run.

`python -m tirgym.benchmarks.device_check --out DIR`
"""
