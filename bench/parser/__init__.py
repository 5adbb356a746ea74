"""What the streaming parser costs for each token: nanoseconds and allocations."""
