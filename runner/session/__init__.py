"""The host's end of a session: its folders, its record, and resuming from it."""
