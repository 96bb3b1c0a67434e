"""Sums that nobody can open: a method whose server needs only means gets them of masked numbers."""
