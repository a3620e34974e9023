"""A container's life: made hardened, started, attached to, ended, and never left behind.

profile    what the container may do, as one value that can be shown and turned into the engine's terms
seccomp    which system calls it may make
workspace  the user's folder: what may be one, where it is mounted, whether it arrived
labels     what everything of ours bears in the engine
container  create, attach, start, stop, remove
attach     the engine's attach connection as a transport of the wire
transfer   copying files between the host and a sandbox that is not trusted
owner      who made a thing in the engine, and whether that process still lives
janitor    a detached program that removes what a dead host process left
sweep      the third line: what is certainly dead is removed at every start
"""
