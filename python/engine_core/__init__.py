"""The engine core: requests, scheduler, KV blocks, prefix cache and the worker group. No torch."""
