"""Tasks as values: what a network's outputs mean, which loss trains it, and by which scores it is judged."""
