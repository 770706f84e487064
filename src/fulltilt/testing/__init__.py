"""A site built by hand, and the checks that every technique must pass. Needs torch; for tests of techniques."""
