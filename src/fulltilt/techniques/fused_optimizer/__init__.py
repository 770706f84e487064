"""The optimizer's step in one kernel for all parameters."""
