"""The built-in tools. `registry.tools_for` makes them; all of them act as the tool identity, none as the guest."""
