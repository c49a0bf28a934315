"""Ends, taps and a bad wire for tests between network namespaces: a script of its own, run inside a namespace.

`client` and `server` send and receive files over TCP connections. `tap` writes what passes an interface to a pcap file.
`relay` passes frames between two interfaces, losing, doubling and delaying some, and writes to pcap files what either
side sees. `plain` switches an interface's offloads off.

All say `ready` when they are; `tap` and `relay` end when their input does.
"""

import array
import contextlib
import fcntl
import heapq
import os
import random
import select
import socket
import struct
import sys
import threading
import time
from pathlib import Path
from typing import BinaryIO

PORT = 1801
FIRST_PORT = 50_000
_EVERYTHING = 0x0003
_OUTGOING = 4
_PACKET, _STATISTICS = 263, 6
_TIMESTAMPNS = 35
_FORCED_BUFFER = 33
_BUFFER = 64 << 20
_LARGEST = 1 << 18
_IOCTL = 0x8946
_CHECKSUM, _SEGMENTATION, _ANY_SEGMENTATION, _MERGING = 0x17, 0x1F, 0x24, 0x2C


def switch_off_offloads(interface: str) -> None:
    """Let the interface cut segments to its MTU and sum them up itself, as `ethtool -K` does."""
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as control:
        for command in (_CHECKSUM, _SEGMENTATION, _ANY_SEGMENTATION, _MERGING):
            value = array.array("I", [command, 0])
            request = struct.pack("16sP16x", interface.encode(), value.buffer_info()[0])
            with contextlib.suppress(OSError):
                fcntl.ioctl(control, _IOCTL, request)


def listen(interface: str) -> socket.socket:
    """A socket that takes in and sends out whole frames."""
    sniffer = socket.socket(socket.AF_PACKET, socket.SOCK_RAW, socket.htons(_EVERYTHING))
    sniffer.setsockopt(socket.SOL_SOCKET, _FORCED_BUFFER, _BUFFER)
    sniffer.setsockopt(socket.SOL_SOCKET, _TIMESTAMPNS, 1)
    sniffer.bind((interface, 0))
    return sniffer


def begin(path: Path) -> BinaryIO:
    """A pcap file with times in ns."""
    file = path.open("wb")
    file.write(struct.pack("<IHHiIII", 0xA1B23C4D, 2, 4, 0, 0, _LARGEST, 1))
    return file


def note(file: BinaryIO, time_ns: int, frame: bytes) -> None:
    """Append a record."""
    file.write(struct.pack("<IIII", *divmod(time_ns, 1_000_000_000), len(frame), len(frame)) + frame)


def tap(interface: str, path: Path) -> None:
    """Write every frame that passes the interface, either way; then how many were missed."""
    sniffer = listen(interface)
    with begin(path) as file:
        print("ready", flush=True)  # noqa: T201 - whoever started this waits for it
        over = False
        while True:
            readable, _, _ = select.select([sniffer, *([] if over else [sys.stdin])], [], [], 0.2 if over else None)
            if sniffer in readable:
                frame, extra, _, _ = sniffer.recvmsg(_LARGEST, 64)
                seconds, ns = struct.unpack("qq", extra[0][2][:16])
                note(file, seconds * 1_000_000_000 + ns, frame)
            elif over:
                break
            over = over or sys.stdin in readable
    _, missed = struct.unpack("II", sniffer.getsockopt(_PACKET, _STATISTICS, 8))
    print(missed, flush=True)  # noqa: T201


def relay(interfaces: list[str], paths: list[Path], seed: int, share: float) -> None:
    """Pass frames on; of all frames `share` is lost, as many are doubled, and twice as many overtaken by others.

    What a side sees: its own frames as they come from it, and the other's as they go out to it.
    """
    rng = random.Random(seed)
    ends = [listen(interface) for interface in interfaces]
    waiting: list[tuple[int, int, int, bytes]] = []
    count = 0
    with contextlib.ExitStack() as stack:
        files = [stack.enter_context(begin(path)) for path in paths]
        print("ready", flush=True)  # noqa: T201
        while True:
            pause = max(0, waiting[0][0] - time.monotonic_ns()) / 1e9 if waiting else None
            readable, _, _ = select.select([*ends, sys.stdin], [], [], pause)
            if sys.stdin in readable:
                break
            for way, end in enumerate(ends):
                if end not in readable:
                    continue
                frame, _, _, address = end.recvmsg(_LARGEST, 64)
                if address[2] == _OUTGOING:
                    continue
                note(files[way], time.time_ns(), frame)
                copies = 0 if rng.random() < share else 2 if rng.random() < share else 1
                for _ in range(copies):
                    delay = rng.randrange(5_000_000) if rng.random() < 2 * share else 100_000
                    count += 1
                    heapq.heappush(waiting, (time.monotonic_ns() + delay, count, 1 - way, frame))
            while waiting and waiting[0][0] <= time.monotonic_ns():
                _, _, way, frame = heapq.heappop(waiting)
                note(files[way], time.time_ns(), frame)
                ends[way].send(frame)


def talk(role: str, address: str, count: int, folder: Path, on_syn: int) -> None:
    """`count` connections at once: send one file over each and write what comes to another.

    Connection i is the one from the client's port 50000 + i; its files are `<i>.<role>` and `<i>.<role>.heard`. The
    first `on_syn` bytes of a client's file are sent with the SYN, if the kernel does that (TCP Fast Open).
    """
    if role == "server":
        with socket.create_server((address, PORT), backlog=count) as server:
            if on_syn:
                server.setsockopt(socket.IPPROTO_TCP, socket.TCP_FASTOPEN, count)
            print("ready", flush=True)  # noqa: T201
            accepted = [server.accept() for _ in range(count)]
        ends = [(peer[1] - FIRST_PORT, end) for end, peer in accepted]
    else:
        print("ready", flush=True)  # noqa: T201
        ends = [(i, socket.socket()) for i in range(count)]
        for i, end in ends:
            end.bind(("", FIRST_PORT + i))
            if on_syn:
                first = (folder / f"{i}.{role}").read_bytes()[:on_syn]
                assert end.sendto(first, socket.MSG_FASTOPEN, (address, PORT)) == len(first)
            else:
                end.connect((address, PORT))
    skip = on_syn if role == "client" else 0
    threads = [threading.Thread(target=converse, args=(end, folder / f"{i}.{role}", i, skip)) for i, end in ends]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()


def converse(end: socket.socket, path: Path, seed: int, skip: int) -> None:
    """Send the file from byte `skip` on in writes of random size, and read to the end."""
    rng = random.Random(seed)
    sender = threading.Thread(target=send, args=(end, path.read_bytes()[skip:], rng))
    sender.start()
    with path.with_name(path.name + ".heard").open("wb") as out:
        while data := end.recv(1 << 16):
            out.write(data)
    sender.join()
    end.close()


def send(end: socket.socket, data: bytes, rng: random.Random) -> None:
    """Write the data in pieces, with a pause now and then."""
    at = 0
    while at < len(data):
        size = rng.choice([1, 7, 100, 1000, 20_000, 60_000])
        end.sendall(data[at : at + size])
        at += size
        if rng.random() < 0.2:
            time.sleep(0.002)
    end.shutdown(socket.SHUT_WR)


def main(role: str, *arguments: str) -> None:
    """Play a role."""
    match role:
        case "tap":
            tap(arguments[0], Path(arguments[1]))
        case "relay":
            for interface in arguments[:2]:
                switch_off_offloads(interface)
            relay(list(arguments[:2]), [Path(path) for path in arguments[2:4]], int(arguments[4]), float(arguments[5]))
        case "plain":
            switch_off_offloads(arguments[0])
            print("ready", flush=True)  # noqa: T201
        case _:
            talk(role, arguments[0], int(arguments[1]), Path(arguments[2]), int(arguments[3]))


if __name__ == "__main__":
    main(*sys.argv[1:])
    sys.stdout.flush()
    os._exit(0)  # whoever still waits for a connection ends, too
