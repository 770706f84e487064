"""Python's garbage collector stops walking what lives to the end."""
