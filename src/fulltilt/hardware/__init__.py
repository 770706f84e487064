"""What machine this is. Parent side, without torch."""
