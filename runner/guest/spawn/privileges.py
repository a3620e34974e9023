"""Capabilities and process attributes, by system call.

`setpriv` could do it too, at the price of one more program to start for each call. Every function raises OSError when
the kernel refuses: a drop that did not happen must never go unnoticed.
"""

from __future__ import annotations

import ctypes
import os

CAP_CHOWN, CAP_DAC_OVERRIDE, CAP_KILL, CAP_SETGID, CAP_SETUID, CAP_SETPCAP = 0, 1, 5, 6, 7, 8

KEPT_BY_GUEST = frozenset({CAP_KILL, CAP_SETGID, CAP_SETUID, CAP_SETPCAP})

_PR_GET_DUMPABLE = 3
_PR_SET_DUMPABLE = 4
_PR_SET_KEEPCAPS = 8
_PR_SET_NAME = 15
_PR_CAPBSET_READ = 23
_PR_CAPBSET_DROP = 24
_PR_SET_CHILD_SUBREAPER = 36
_PR_SET_NO_NEW_PRIVS = 38
_PR_CAP_AMBIENT = 47
_PR_CAP_AMBIENT_CLEAR_ALL = 4
_VERSION_3 = 0x20080522
_SYS_CLOSE_RANGE = 436  # the same on every architecture
_HIGHEST_DESCRIPTOR = 0xFFFFFFFF

_libc = ctypes.CDLL(None, use_errno=True)
_prctl = _libc.prctl
_prctl.argtypes = [ctypes.c_int, ctypes.c_ulong, ctypes.c_ulong, ctypes.c_ulong, ctypes.c_ulong]
_prctl.restype = ctypes.c_int
_syscall = _libc.syscall
_syscall.restype = ctypes.c_long


class _Header(ctypes.Structure):
    _fields_ = (("version", ctypes.c_uint32), ("pid", ctypes.c_int))


class _Data(ctypes.Structure):
    _fields_ = (("effective", ctypes.c_uint32), ("permitted", ctypes.c_uint32), ("inheritable", ctypes.c_uint32))


_Sets = _Data * 2
# Made once: a forked child would pay for the memory that it touches for the first time.
_HEADER = _Header(_VERSION_3, 0)
_EMPTY = _Sets()


def _call(option: int, argument: int = 0, third: int = 0) -> int:
    result = int(_prctl(option, argument, third, 0, 0))
    if result < 0:
        number = ctypes.get_errno()
        raise OSError(number, f"prctl({option}, {argument}): {os.strerror(number)}")
    return result


def become_subreaper() -> None:
    """Orphans below this process become its children, not PID 1's."""
    _call(_PR_SET_CHILD_SUBREAPER, 1)


def forbid_new_privileges() -> None:
    """No set-uid bit and no file capability has an effect from here on."""
    _call(_PR_SET_NO_NEW_PRIVS, 1)


def set_dumpable(allowed: bool) -> None:
    """Whether a process of the same uid may attach, and whether `/proc/self` belongs to it."""
    _call(_PR_SET_DUMPABLE, int(allowed))


def is_dumpable() -> bool:
    return _call(_PR_GET_DUMPABLE) == 1


def keep_capabilities_over_setuid() -> None:
    """The next change of uid away from 0 leaves the permitted set as it is."""
    _call(_PR_SET_KEEPCAPS, 1)


def name_process(name: str) -> None:
    """What `ps` shows, at most 15 bytes."""
    buffer = ctypes.create_string_buffer(name.encode()[:15])
    _call(_PR_SET_NAME, ctypes.addressof(buffer))


def clear_ambient() -> None:
    _call(_PR_CAP_AMBIENT, _PR_CAP_AMBIENT_CLEAR_ALL)


def bounding_set() -> frozenset[int]:
    """The capabilities that an exec could still give."""
    found = []
    for capability in range(64):
        present = int(_prctl(_PR_CAPBSET_READ, capability, 0, 0, 0))
        if present < 0:  # EINVAL: the kernel has no such capability, nor any beyond
            break
        if present:
            found.append(capability)
    return frozenset(found)


def drop_from_bounding_set(capabilities: frozenset[int]) -> None:
    """Needs CAP_SETPCAP."""
    for capability in capabilities:
        _call(_PR_CAPBSET_DROP, capability)


def permitted_set() -> frozenset[int]:
    """The capabilities that this process has."""
    sets = _Sets()
    if _libc.capget(ctypes.byref(_HEADER), sets):
        number = ctypes.get_errno()
        raise OSError(number, f"capget: {os.strerror(number)}")
    mask = sets[0].permitted | sets[1].permitted << 32
    return frozenset(bit for bit in range(64) if mask >> bit & 1)


def set_capabilities(capabilities: frozenset[int]) -> None:
    """Makes the permitted and the effective set exactly this, and the inheritable set empty."""
    sets = _EMPTY
    if capabilities:
        mask = sum(1 << capability for capability in capabilities)
        low, high = mask & 0xFFFFFFFF, mask >> 32
        sets = _Sets(_Data(low, low, 0), _Data(high, high, 0))
    if _libc.capset(ctypes.byref(_HEADER), sets):
        number = ctypes.get_errno()
        raise OSError(number, f"capset: {os.strerror(number)}")


def close_from(first: int) -> None:
    """Closes every descriptor from `first` on."""
    result = _syscall(_SYS_CLOSE_RANGE, ctypes.c_uint(first), ctypes.c_uint(_HIGHEST_DESCRIPTOR), ctypes.c_uint(0))
    if result < 0:  # a kernel before 5.9, or a seccomp profile that does not know the call
        for name in os.listdir("/proc/self/fd"):
            if int(name) >= first:
                try:
                    os.close(int(name))
                except OSError:
                    continue  # the listing's own
