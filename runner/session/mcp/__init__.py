"""The servers under `mcp:`: started in the sandbox, spoken to from the host by the official SDK.

    lines     a server's stdin and stdout, over the wire, as the SDK's streams
    listing   what a server says of its tools, as far as it can be believed
    server    one server's life: start, calls, death, one restart
    servers   all of a session's

A server is a program of a stranger's that runs as U. The SDK lives here and not in the guest because it brings twenty
packages; what a server sends is parsed here all the same, so everything of it is bounded.
"""
