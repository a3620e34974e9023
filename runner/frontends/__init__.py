"""What people and programs see of a session. Every front end renders the same events, by `render.Renderer`."""
