"""How weights come from a trainer into a worker: back ends, found by name."""
