"""Images with their channels side by side in memory."""
