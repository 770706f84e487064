"""torch.compile in place, under a guard that falls back to eager."""
