"""What travels between the host and the guest: frames, messages, and the agent's description.

Standard library only: the host and the guest both import this package, and nothing else of each other's.

    frames    length, channel, payload; how bytes become frames and back
    messages  the JSON messages of channel 0, one dataclass each, checked when decoded
    agent     what the guest is told of the agent: model, tools, hooks
    mux       one asyncio end of the wire: messages, byte streams with credit
"""

VERSION = 1
"""The wire's version. It changes with any change that an older end would misread."""
