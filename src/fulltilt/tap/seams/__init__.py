"""Seams: one replaced function or method of torch or Python each, every one undoable."""
