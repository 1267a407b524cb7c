"""What each path costs: the least code that does the same work, ours, and what else is installed, side by side.

Run it as `python -m benchmarks`; `docs/performance.md` says what each row is and how to read the table. Nothing
here is loaded by the package, and nothing is asserted: a goal is reached or missed, and both are printed.
"""
