"""Runs the user's command in trials: process trees, the wire to the worker, lockstep, journal. Parent side."""
