"""What people write, checked: recipes. Parent side."""
