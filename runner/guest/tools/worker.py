"""What the file tools do, run as U in a child of a supervisor. Preloaded by the fork server, so kept small."""
