"""Other readers of captures: the byte streams that they make of a file, by direction."""

import re
import shutil
import subprocess
from collections import defaultdict
from collections.abc import Callable
from pathlib import Path

import dpkt
from oracle import Key

Streams = dict[Key, list[bytes]]
"""The bytes of each direction, one for each connection in turn."""

_NODE = re.compile(r"Node ([01]): (\S+):(\d+)")
_FILTER = re.compile(r"tcp.stream eq (\d+)")
_FLOW_FILE = re.compile(r"([\d.]{15})\.(\d{5})-([\d.]{15})\.(\d{5})(?:c(\d+))?$")


def version(tool: str) -> str | None:
    """What the tool calls its version; None when it is not there."""
    if shutil.which(tool) is None:
        return None
    said = subprocess.run([tool, "--version"], capture_output=True, text=True, check=False, timeout=60).stdout
    found = re.search(r"\d+\.\d+\.\d+", said)
    return found and found.group()


def tshark(capture: Path, *, out_of_order: bool) -> Streams:
    """The streams that tshark follows, with or without its reassembly of segments out of order."""
    command = ["tshark", "-r", str(capture), "-o", f"tcp.reassemble_out_of_order:{str(out_of_order).upper()}"]
    run = subprocess.run
    numbers = run([*command, "-T", "fields", "-e", "tcp.stream"], capture_output=True, text=True, check=False).stdout
    follow = [f"-zfollow,tcp,raw,{number}" for number in sorted({int(n) for n in numbers.split()})]
    if not follow:
        return {}
    said = run([*command, "-q", *follow], capture_output=True, text=True, check=False).stdout
    followed: dict[int, list[tuple[Key, bytes]]] = {}
    for part in re.split(r"^=+\n", said, flags=re.MULTILINE):
        nodes = [(host, int(port)) for _, host, port in _NODE.findall(part)]
        if number := _FILTER.search(part):
            ways = [b"", b""]
            for line in part.splitlines()[4:]:
                ways[line.startswith("\t")] += bytes.fromhex(line.strip())
            keys = (*nodes[0], *nodes[1]), (*nodes[1], *nodes[0])
            followed[int(number[1])] = list(zip(keys, ways, strict=True))
    out: Streams = defaultdict(list)
    for _, pair in sorted(followed.items()):  # tshark prints the last first
        for key, data in pair:
            out[key].append(data)
    return dict(out)


def tshark_dissected(capture: Path, *, out_of_order: bool) -> int:
    """How many DNS messages tshark's dissectors find on the port, which is what its reassembly is for."""
    command = ["tshark", "-r", str(capture), "-o", f"tcp.reassemble_out_of_order:{str(out_of_order).upper()}"]
    fields = ["-d", "tcp.port==1801,dns", "-Y", "dns", "-T", "fields", "-e", "dns.id"]
    said = subprocess.run([*command, *fields], capture_output=True, text=True, check=False).stdout
    return len({number for line in said.split() for number in line.split(",")})


def tcpflow(capture: Path) -> Streams:
    """The files that tcpflow writes."""
    folder = capture.with_name(capture.name + ".flows")
    folder.mkdir()
    subprocess.run(["tcpflow", "-r", capture, "-o", folder], capture_output=True, check=False)  # noqa: S607 - as found
    out: dict[Key, list[tuple[int, bytes]]] = defaultdict(list)
    for path in folder.iterdir():
        if match := _FLOW_FILE.match(path.name):
            hosts = [".".join(str(int(n)) for n in match[i].split(".")) for i in (1, 3)]
            key = (hosts[0], int(match[2]), hosts[1], int(match[4]))
            out[key].append((int(match[5] or 0), path.read_bytes()))
    return {key: [data for _, data in sorted(parts)] for key, parts in out.items()}


def dpkt_loop(capture: Path) -> Streams:
    """Payloads one after the other as they come, which is what scripts around dpkt mostly do."""
    out: dict[Key, bytes] = defaultdict(bytes)
    with capture.open("rb") as file:
        try:
            for _, frame in dpkt.pcap.UniversalReader(file):
                datagram = dpkt.ethernet.Ethernet(frame).data
                if isinstance(datagram, dpkt.ip.IP) and isinstance(datagram.data, dpkt.tcp.TCP):
                    hosts = [".".join(map(str, address)) for address in (datagram.src, datagram.dst)]
                    segment = datagram.data
                    out[hosts[0], segment.sport, hosts[1], segment.dport] += segment.data
        except (ValueError, dpkt.Error):
            pass  # what came before it counts
    return {key: [data] for key, data in out.items()}


READERS: dict[str, tuple[str | None, Callable[[Path], Streams]]] = {
    "tshark": ("tshark", lambda capture: tshark(capture, out_of_order=False)),
    "tshark, out of order": ("tshark", lambda capture: tshark(capture, out_of_order=True)),
    "tcpflow": ("tcpflow", tcpflow),
    "dpkt loop": (None, dpkt_loop),
}
"""By name in the table of docs/other-readers.md: the command that is needed, and the reader."""
