"""How we get inside an unmodified script: seams on torch that find the site and count steps. Worker side."""
