"""KV blocks: groups, pools, the prefix index and the tables of requests. Pure: no I/O, no torch."""
