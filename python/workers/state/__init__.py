"""What a worker keeps of each request, in stable slots."""
