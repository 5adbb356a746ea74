"""Actors: tasks and processes that own state, talk by messages and are supervised. On anyio and pyzmq; no torch."""
