"""`python -m bench.compare`: the same work on octavo and on the peers that are installed."""
