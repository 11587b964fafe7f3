"""Transforms of Triton programs: meta-parameters, and edits of the pass pipeline, one a file.

They stand in the table of all transforms (`tirgym.harness.transforms`), with a text form like any other.
"""
