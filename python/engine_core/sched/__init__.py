"""The scheduler: one rule, in small functions over one draft of a step. Pure: no I/O, no clock, no torch."""
