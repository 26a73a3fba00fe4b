"""Kernels that show the card at work: sources in OpenCL C, their build, launches with references in numpy."""
