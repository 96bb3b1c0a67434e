"""How a list of work is computed: one at a time on the CPU, or together on a GPU."""
