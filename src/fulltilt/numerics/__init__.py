"""Are the numbers still right? Sketches in the worker, verdicts in the parent."""
