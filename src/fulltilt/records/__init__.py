"""Frozen dataclasses that leave a process, as JSON. Standard library only: the worker reads and writes them too."""
