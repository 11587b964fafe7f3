"""Triton, compiled ahead of time for GPUs that need not be here.

Modules import triton inside functions, so that importing them costs nothing and works without it.
"""
