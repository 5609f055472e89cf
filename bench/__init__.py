"""Benchmarks: side by side with others, in one run, on this machine."""
