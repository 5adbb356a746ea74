"""What the engine core costs by itself: steps, prefix lookups, deltas. `python -m bench.scheduler`."""
