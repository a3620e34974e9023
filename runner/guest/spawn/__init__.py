"""Starting processes in the container under other identities, and ending all that they started.

    command      what to start and what came of it: plain data
    privileges   capabilities and process attributes, by system call
    tree         finding and ending everything below a process
    child        what happens between fork and exec: the drop of all privilege
    supervisor   one process a call, child subreaper: starts it, ends what it left, tells how it ended
    server       forks supervisors ahead; itself forked before the guest grows
    channel      JSON messages with descriptors over a Unix socket
    capture      a stream's head and tail in memory, the whole in a file
    process      a started command, and the guest's end of its supervisor
    spawner      the guest's asyncio end of all this

The server and what it forks must stay small, so this package imports nothing by itself: take names from the modules.
"""
