"""Many runs: comparisons, tuning, and the papers' experiments."""
