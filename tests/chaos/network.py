"""Machines as network namespaces, joined by a bridge from which they can be unplugged (Linux, as root)."""

from __future__ import annotations

import ctypes
import os
import shutil
import subprocess
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager

from tests.support.server import die_with_parent

__all__ = ["Network", "joined", "why_there_is_no_network"]

_LIBC = ctypes.CDLL(None, use_errno=True)
_CLONE_NEWNET = 0x40000000
_BRIDGE = "arenaplan"


class Network:
    """Namespaces by number. Who is unplugged is not told: what it sends, and what is sent to it, is gone."""

    #: Where all of them find who made the network.
    address = "10.213.0.1"

    def __init__(self, namespaces: list[int]) -> None:
        self._namespaces = namespaces

    def within(self, number: int) -> list[str]:
        """Before a command: run it there."""
        return ["nsenter", f"--net=/proc/{self._namespaces[number]}/ns/net", "--"]

    def unplug(self, number: int) -> None:
        _run("ip", "link", "set", f"machine{number}", "nomaster")

    def plug_in(self, number: int) -> None:
        _run("ip", "link", "set", f"machine{number}", "master", _BRIDGE)


def why_there_is_no_network() -> str | None:
    """Why machines cannot be made here; None where they can."""
    if missing := [name for name in ("ip", "nsenter", "unshare") if shutil.which(name) is None]:
        return f"{', '.join(missing)} is not installed (iproute2, util-linux)"
    tried = "ip link add name arenaplan type bridge && ip link add name left type veth peer name right"
    done = subprocess.run(
        ["unshare", "--net", "sh", "-c", tried], capture_output=True, text=True, check=False
    )
    return (
        f"this machine does not permit network namespaces: {done.stderr.strip()}" if done.returncode else None
    )


@contextmanager
def joined(machines: int) -> Iterator[Network]:
    """So many machines, and this thread and what it starts in a network with them, away from any other."""
    with ExitStack() as stack:
        outside = os.open("/proc/thread-self/ns/net", os.O_RDONLY)
        stack.callback(os.close, outside)
        _call(_LIBC.unshare(_CLONE_NEWNET))
        stack.callback(lambda: _call(_LIBC.setns(outside, _CLONE_NEWNET)))
        _run("ip", "link", "set", "lo", "up")
        _run("ip", "link", "add", "name", _BRIDGE, "type", "bridge")
        _run("ip", "address", "add", f"{Network.address}/24", "dev", _BRIDGE)
        _run("ip", "link", "set", _BRIDGE, "up")
        holders = []
        for _ in range(machines):
            # Says so once it is in a namespace of its own, and keeps that alive.
            holder = subprocess.Popen(
                ["unshare", "--net", "sh", "-c", "echo; exec sleep infinity"],
                stdout=subprocess.PIPE, preexec_fn=die_with_parent,
            )  # fmt: skip
            stack.callback(holder.wait)
            stack.callback(holder.kill)
            assert holder.stdout is not None
            holder.stdout.readline()
            holders.append(holder.pid)
        network = Network(holders)
        for number, holder_pid in enumerate(holders):
            link = [
                "name",
                f"machine{number}",
                "type",
                "veth",
                "peer",
                "name",
                "eth0",
                "netns",
                str(holder_pid),
            ]
            _run("ip", "link", "add", *link)
            network.plug_in(number)
            _run("ip", "link", "set", f"machine{number}", "up")
            there = network.within(number)
            _run(*there, "ip", "address", "add", f"10.213.0.{number + 2}/24", "dev", "eth0")
            _run(*there, "ip", "link", "set", "eth0", "up")
        yield network


def _run(*command: str) -> None:
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, f"{' '.join(command)}: {done.stderr}"


def _call(code: int) -> None:
    if code:
        number = ctypes.get_errno()
        raise OSError(number, os.strerror(number))
