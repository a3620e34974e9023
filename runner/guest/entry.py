"""The container's first program: PID 1, which starts as root, prepares, and becomes the guest in place.

    python3 -I -S -B /opt/sbx/lib/runner/guest/entry.py WORKSPACE [JSON]

JSON says `owner`, U where no folder of the host's tells it, and `give`, folders that are to be U's, each with its mode.

It has six capabilities: CHOWN and DAC_OVERRIDE to give the home to U, and SETUID, SETGID, KILL, SETPCAP to keep.
Nothing of U's runs before it has dropped the first two. It drops in place, which saves a second start of Python.

Exit codes of its own, each with one line on stderr that begins with `sbx: `:

    78  the workspace is missing, or its owner is refused
    77  the container lacks a capability that this needs
"""

from __future__ import annotations

import gc
import json
import os
import stat
import sys
from typing import TYPE_CHECKING, NamedTuple, NoReturn

if __name__ == "__main__":
    # -I leaves the program's own folder out of the path, as it should for anyone else.
    sys.path.insert(0, __file__.rsplit("/runner/guest/", 1)[0])

from runner.guest.spawn import command, privileges, server
from runner.guest.spawn.command import GUEST_UID, HOOK_UID, Identity

if TYPE_CHECKING:
    import socket
    from collections.abc import Iterable

EXIT_WORKSPACE = 78
EXIT_CAPABILITY = 77
REFUSED_OWNERS = (GUEST_UID, HOOK_UID, command.NOBODY_UID)
_NEEDED = privileges.KEPT_BY_GUEST | {privileges.CAP_CHOWN, privileges.CAP_DAC_OVERRIDE}
_EXTRA_USERS = "/var/lib/extrausers"
_OWNER_NAME = "owner"


class Guest(NamedTuple):
    """What the agent loop is handed."""

    workspace: str
    owner: Identity
    connection: socket.socket
    """To the fork server; for `Spawner`."""
    server_pid: int


def main() -> NoReturn:
    """The program."""
    if len(sys.argv) not in (2, 3):
        _refuse(EXIT_WORKSPACE, "the entry wants the workspace's folder")
    given = json.loads(sys.argv[2]) if len(sys.argv) == 3 else {}
    guest = become_guest(sys.argv[1], given.get("owner"), given.get("give") or ())
    # What is imported now stays; looking through it again and again costs a tenth of the start.
    gc.set_threshold(100_000, 20, 20)
    from runner.guest.main import main as run  # only now: it grows this process, and the server is forked from it

    run(guest)


def become_guest(workspace: str, private: list[int] | None = None, give: Iterable[tuple[str, int]] = ()) -> Guest:
    """Prepares as root, drops to the guest's identity, forks the server. Exits the process when it cannot.

    Args:
        workspace: the mounted folder; who owns it is U.
        private: uid and gid of U; the workspace is a volume, and made to be U's.
        give: folders that become U's, and their modes.
    """
    owner = Identity(private[0], private[1], "") if private else _owner(workspace)
    missing = _NEEDED - privileges.permitted_set()
    if os.getuid() != 0 or missing:
        _refuse(EXIT_CAPABILITY, f"the entry must start as root with six capabilities; missing: {sorted(missing)}")
    os.umask(0o022)
    try:
        owner = owner._replace(name=_give_names(owner))
        _give_home(command.HOME, owner)
        for folder, mode in [*([(workspace, 0o755)] if private else []), *give]:
            _give_volume(folder, mode, owner)
        _make_folders()
        _take_from_root()
    except OSError as error:
        _refuse(EXIT_CAPABILITY, f"the container cannot be prepared: {error}")
    _become(GUEST_UID)
    # Closes /proc/1 to U: what is not dumpable belongs to root there, which is right unless U is root.
    privileges.set_dumpable(owner.uid == 0)
    connection, pid = server.launch()
    return Guest(workspace, owner, connection, pid)


def _owner(workspace: str) -> Identity:
    try:
        found = os.stat(workspace)
    except OSError as error:
        _refuse(EXIT_WORKSPACE, f"the workspace {workspace} cannot be read: {error.strerror}")
    if not stat.S_ISDIR(found.st_mode):
        _refuse(EXIT_WORKSPACE, f"the workspace {workspace} is not a folder")
    if found.st_uid in REFUSED_OWNERS or found.st_gid in (GUEST_UID, HOOK_UID):
        _refuse(
            EXIT_WORKSPACE,
            f"the workspace {workspace} belongs to {found.st_uid}:{found.st_gid}, which is reserved "
            f"({', '.join(map(str, REFUSED_OWNERS))}); give it to another user",
        )
    return Identity(found.st_uid, found.st_gid, "")


def _give_names(owner: Identity) -> str:
    """Names for the numbers that have none, on the tmpfs that libnss-extrausers reads. U's name."""
    import grp
    import pwd

    name = _OWNER_NAME
    users, groups = [], []
    for wanted, uid, gid, home in (
        (_OWNER_NAME, owner.uid, owner.gid, command.HOME),
        ("sbx-guest", GUEST_UID, GUEST_UID, "/nonexistent"),
        (command.HOOK.name, HOOK_UID, HOOK_UID, command.EMPTY_HOME),
    ):
        try:
            found = pwd.getpwuid(uid).pw_name
        except KeyError:
            found = wanted
            shell = "/bin/bash" if uid == owner.uid else "/usr/sbin/nologin"
            users.append(f"{wanted}:x:{uid}:{gid}:sbx:{home}:{shell}\n")
        try:
            grp.getgrgid(gid)
        except KeyError:
            groups.append(f"{wanted}:x:{gid}:\n")
        if uid == owner.uid:
            name = found
    try:
        for file, lines in (("passwd", users), ("group", groups)):
            with open(f"{_EXTRA_USERS}/{file}", "w", encoding="ascii") as out:
                out.writelines(lines)
                os.fchown(out.fileno(), GUEST_UID, GUEST_UID)  # not root's: U may be root
        os.chown(_EXTRA_USERS, GUEST_UID, GUEST_UID)
    except OSError as error:
        print(f"sbx: {owner.uid} stays without a name: {error}", file=sys.stderr)
    return name


def _give_home(home: str, owner: Identity) -> None:
    """Makes U the owner of the home and all in it. Quick when it is already.

    The folder itself comes last, so an interrupted run is done again. U may have left anything there in an earlier
    life of the container, so no link is followed, and folders are walked by descriptor.
    """
    try:
        found = os.lstat(home)
    except FileNotFoundError:
        return
    if not stat.S_ISDIR(found.st_mode) or (found.st_uid, found.st_gid) == (owner.uid, owner.gid):
        return
    descriptor = os.open(home, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC)
    try:
        _give_folder(descriptor, owner, found.st_dev)
        os.fchown(descriptor, owner.uid, owner.gid)
    finally:
        os.close(descriptor)


def _give_volume(folder: str, mode: int, owner: Identity) -> None:
    """A new volume is root's. The mode first: who gives a folder away may no longer change it."""
    found = os.lstat(folder)
    if stat.S_ISDIR(found.st_mode) and found.st_uid == 0 and stat.S_IMODE(found.st_mode) != mode:
        os.chmod(folder, mode)
    _give_home(folder, owner)


def _give_folder(folder: int, owner: Identity, device: int) -> None:
    with os.scandir(folder) as entries:
        for entry in entries:
            found = entry.stat(follow_symlinks=False)
            if found.st_dev != device:
                continue  # something mounted there, such as a workspace under the home, is not ours to give
            if stat.S_ISDIR(found.st_mode):
                below = os.open(entry.name, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC, dir_fd=folder)
                try:
                    _give_folder(below, owner, device)
                finally:
                    os.close(below)
            if (found.st_uid, found.st_gid) != (owner.uid, owner.gid):
                os.chown(entry.name, owner.uid, owner.gid, dir_fd=folder, follow_symlinks=False)


def _make_folders() -> None:
    _make_folder(command.RUN_DIR, GUEST_UID, 0o755)
    _make_folder(command.EMPTY_HOME, GUEST_UID, 0o555)
    _make_folder(command.OUTPUT_DIR, GUEST_UID, 0o755)
    _make_folder(command.HOOK_TMP, HOOK_UID, 0o700)


def _take_from_root() -> None:
    """Gives to the guest what uid 0 would own by that alone, be it U or a startup command: it could rename what lies in
    /tmp in spite of the sticky bit, and put a link of its own in the place of /dev/stdin, from which a guard reads its
    question."""
    for folder in ("/tmp", "/var/tmp", "/run", "/dev", "/dev/shm", "/dev/mqueue"):  # noqa: S108
        try:
            os.chown(folder, GUEST_UID, GUEST_UID, follow_symlinks=False)
        except FileNotFoundError:
            continue
    with os.scandir("/dev") as entries:
        for entry in entries:
            if not entry.is_dir(follow_symlinks=False):
                os.chown(entry.path, GUEST_UID, GUEST_UID, follow_symlinks=False)


def _make_folder(path: str, uid: int, mode: int) -> None:
    """A folder of `uid`'s. One that is there must be a real one: U may have planted a link in an earlier life."""
    try:
        os.mkdir(path, 0o700)
    except FileExistsError:
        if not stat.S_ISDIR(os.lstat(path).st_mode):
            os.unlink(path)
            os.mkdir(path, 0o700)
    descriptor = os.open(path, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC)
    try:
        # The mode first: who gives a folder away may no longer change it, having no CAP_FOWNER.
        if stat.S_IMODE(os.fstat(descriptor).st_mode) != mode:
            os.fchown(descriptor, 0, 0)
            os.fchmod(descriptor, mode)
        os.fchown(descriptor, uid, uid)
    finally:
        os.close(descriptor)


def _become(uid: int) -> None:
    """Drops from root to the guest, keeping four capabilities, with no way back and no way to more."""
    privileges.clear_ambient()
    privileges.drop_from_bounding_set(privileges.bounding_set() - privileges.KEPT_BY_GUEST)
    os.setgroups([])
    os.setresgid(uid, uid, uid)
    privileges.keep_capabilities_over_setuid()
    os.setresuid(uid, uid, uid)
    privileges.set_capabilities(privileges.KEPT_BY_GUEST)
    privileges.forbid_new_privileges()
    os.environ["HOME"] = "/nonexistent"


def _refuse(code: int, message: str) -> NoReturn:
    print(f"sbx: {message}", file=sys.stderr, flush=True)
    os._exit(code)


if __name__ == "__main__":
    main()
