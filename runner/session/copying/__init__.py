"""Files in and out of a sandbox, as a stream of the tar format that a `tar` in the sandbox, run as U, makes or takes.

archive  reads and writes the format; strict, since what comes out of a sandbox is hostile
folder   the host's folder: walked by descriptor, no link followed, nothing made that is neither file, folder nor link
copy     what `sbx cp` does with a source and a destination
"""
