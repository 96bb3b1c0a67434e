"""A federation between organisations, on Flower: what is agreed, what each keeps to itself, and how it is run."""
