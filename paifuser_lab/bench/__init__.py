"""Benchmarks: run by hand, print ratios, assert nothing about time."""
