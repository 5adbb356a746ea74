"""Kernels in small typed families. `api` says what each op computes, `select` picks implementations once, at build."""
