"""Inputs, entries and the exact reference of each kernel, for its CPU tests and its GPU tests."""
