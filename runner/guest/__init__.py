"""What runs in the container: the agent loop, and what it starts. Imports only `wire` of the host's packages."""
