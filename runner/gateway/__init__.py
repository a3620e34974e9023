"""The only way out of a sandbox: what may leave is decided here, on the host, and written down.

    names    one spelling for every host name and address
    policy   the matcher: enforcement, `sbx policy check` and `sbx policy ls` ask the same object
    rules    policy files, presets and groups: where the matcher's rules come from
    grants   what a kit asks for beyond the default profile, and who may say yes
    model    the model server's requests, which travel over the wire
    proxy    the HTTP and CONNECT proxy behind the container's loopback: connection, http, tunnel, hello, upstream
    decisions    the decision log
    credentials  what is set on requests here: interception opens the TLS for it
    redaction    secrets masked everywhere else
    environment  what programs read to find the proxy

Everything that comes from the guest is untrusted: a request is compared with what is allowed and then built anew from
the allowed side's own text.
"""
