"""Worker processes and pinned memory for a DataLoader."""
