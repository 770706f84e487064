"""How many CPU threads one torch operation uses, and on which CPUs."""
