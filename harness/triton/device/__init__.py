"""Compiled Triton kernels on a GPU: launched by the driver, gated, timed, compared.

Modules import torch and triton inside functions. All but the driver itself runs in tests, on a device
that executes TTGIR on NumPy.
"""
