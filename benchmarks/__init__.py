"""Benchmarks: programs that compare side by side in one run, and print ratios. See docs/benchmarks.md."""
