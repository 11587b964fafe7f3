"""Triton sources of the kernels of `triton-v0`, one family per file; importing a family imports triton.

`sources` and `source` import no triton: they say which kernels have a source, and what a source is.
"""
