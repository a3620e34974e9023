"""What runs in the container: the agent loop, its tools and its hooks."""
