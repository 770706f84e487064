"""float32 matrix products computed in fewer bits."""
