"""The guest's model client: chat completions from servers that differ from the specification and from each other.

    items      what a streamed answer is made of
    sse        bytes into server-sent events, whatever the pieces they arrive in
    thinking   `<think>` blocks apart from the answer
    answer     deltas into an answer and its calls: the accumulation rules
    arguments  a call's arguments: decoded, checked against the tool's schema
    leak       routing text that a model leaked into arguments
    failure    what a server's error means
    history    the history as every server accepts it
    transport  httpx over the wire, or directly
    resolve    which URL answers, what it serves, how large its context is
    client     one request: retries, timers, cancellation

`httpx` is imported by transport, resolve and client only.
"""
