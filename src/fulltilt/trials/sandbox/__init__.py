"""Keeps what a trial writes apart from the user's files: an overlay that is thrown away, where the kernel allows it."""
