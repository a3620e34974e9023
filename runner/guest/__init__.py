"""What runs in the container: the agent loop, and what it starts. Imports `wire` of the host's packages, nothing else."""
