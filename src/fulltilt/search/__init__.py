"""Finds the fastest recipe whose numbers are right. Knows trials only through their contract. Parent side."""
