"""Captures in tunnels, behind tags and of other link layers say what the same frames plain say; the rest is counted."""

import re
import shutil
import struct
import subprocess
from collections import Counter
from collections.abc import Sequence
from functools import cache
from itertools import groupby
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import pytest
from night_truth import SITUATIONS
from pipeline import block_of
from test_offsets import records_of
from tiers import merge_needs
from warehouses import derived
from wiretap import enhanced, ethernet, fragments4, interface, ipv4, pcap, records, section, tcp, udp

from jobs import main
from jobs.simulator import simulate
from jobs.simulator.encapsulations import ENCAPSULATIONS as FORMS
from schemas.ingest import CAPTURES, INTERNAL_CONNECTIONS
from schemas.tables import TABLES
from udfs.network.dissect import find_segments

SEVERAL = {"vxlan_fragments", "vxlan_and_plain", "geneve_fragments"}
"""Forms that hold a frame as several."""
PLACES = ("capture_id", "uri", "first_uri", "accepted_uri", "ingested_at", "size_bytes", "content_bytes", "tunnels")
FRAMES = (
    *("frame_number", "first_frame_number", "accepted_frame_number", "first_frame", "last_frame", "frame", "witness"),
    *("packet_count", "segment_count", "to_port_count", "receiver_last_at", "receiver_last_ns"),
)
LARGEST = 1500
"""Bytes of a frame that IEEE 802.2 can hold with SNAP."""
NIGHTS = [(form, index % len(SITUATIONS), seed) for seed in range(2) for index, form in enumerate(FORMS)]
Rows = dict[str, list[dict[str, Any]]]


def without_places(value: Any, left_out: Sequence[str], folder: str) -> Any:
    """The value without the columns that name places, also within it, and without the folder's name."""
    if isinstance(value, dict):
        return {name: without_places(one, left_out, folder) for name, one in value.items() if name not in left_out}
    if isinstance(value, list):
        return [without_places(one, left_out, folder) for one in value]
    if not isinstance(value, str):
        return value
    value = value.replace(folder, "")
    return re.sub(r"record \d+", "record", value) if "frame" in left_out else value


def told(folder: str, left_out: Sequence[str]) -> Rows:
    """What all tables say of the captures in a folder but for what names places."""
    tables = derived(Path(folder) / "*.pcap")
    kept = {table.name: tables[table.name].to_dicts() for table in TABLES if table != INTERNAL_CONNECTIONS}
    if "first_frame" in left_out:  # records are as many as frames
        kept["books"] = [row for row in kept["books"] if row["book"] != "records"]
    return {
        name: sorted((without_places(row, left_out, folder) for row in rows), key=repr) for name, rows in kept.items()
    }


@cache
def night(situation: int, seed: int, form: str, left_out: Sequence[str]) -> Rows:
    with TemporaryDirectory() as folder:
        options: dict[str, Any] = {"file_bytes": 1 << 30, "encapsulation": form} | SITUATIONS[situation]
        simulate(folder, seed, 150, **options)
        return told(folder, left_out)


@pytest.mark.parametrize(("form", "situation", "seed"), merge_needs(NIGHTS[19:20], NIGHTS))
def test_any_form_that_keeps_packets_and_times_gives_the_same_tables(form: str, situation: int, seed: int) -> None:
    left_out = (*PLACES, *FRAMES) if form in SEVERAL else PLACES
    plain, found = (night(situation, seed, one, left_out) for one in ("plain", form))
    assert [name for name, rows in plain.items() if found[name] != rows] == []
    assert plain["messages"]


@pytest.fixture(scope="module")
def frames(tmp_path_factory: pytest.TempPathFactory) -> list[bytes]:
    """The frames of a small capture."""
    folder = tmp_path_factory.mktemp("plain")
    simulate(str(folder), 5, 40, situations=True, file_bytes=1 << 30)
    (file,) = folder.glob("*.pcap")
    return [record[16:] for record in records_of(file.read_bytes())]


def in_form(form: str, frames: Sequence[bytes]) -> list[bytes]:
    return [one for frame in frames for one in FORMS[form].frames(frame)]


Segment = tuple[bytes, int, int, bytes]


def segments_in(frames: Sequence[bytes], link_type: int) -> list[Segment]:
    """Endpoints, numbers and payload of the segments that are found; each frame is one or a fragment."""
    held = block_of(frames, link_type)
    found, rejected, fragments = find_segments(held, (1801,))
    assert (rejected.reason, sum(rejected.not_judged.values())) == ([], 0)
    assert len(found.frame) + len(fragments.frame) == len(frames)
    columns = (found.payload, found.captured, found.seq, found.header_sum)
    return [
        (ends.tobytes(), seq, header_sum, held.buffer[at : at + size].tobytes())
        for ends, at, size, seq, header_sum in zip(found.endpoints, *(one.tolist() for one in columns), strict=True)
    ]


@pytest.fixture(scope="module")
def plain(frames: list[bytes]) -> list[Segment]:
    return segments_in(frames, 1)


@pytest.mark.parametrize("form", FORMS)
def test_the_segments_of_all_forms_are_those_of_the_plain_frames(
    form: str, frames: list[bytes], plain: list[Segment]
) -> None:
    found = segments_in(in_form(form, frames), FORMS[form].link_type)
    if form in ("vxlan_fragments", "geneve_fragments"):
        assert len(found) < len(plain)  # `udfs.ingest.defragment` adds the others
        assert Counter(found) <= Counter(plain)
    else:
        assert found == (plain if form != "vxlan_and_plain" else [one for each in plain for one in (each, each)])


NAMES = {
    "vlan": "vlan", "qinq": "ieee8021ad:ethertype:vlan", "snap": "llc", "vxlan": "vxlan", "vxlan_8472": "vxlan",
    "vxlan_gpe": "udp:eth", "vxlan_ipv6": "ipv6:udp:vxlan", "geneve": "geneve", "gre": "gre", "gre_packet": "gre:ip",
    "nvgre": "gre", "erspan_1": "gre", "erspan_2": "erspan", "erspan_3": "erspan", "erspan_3_subheader": "erspan",
    "ip_in_ip": "ip:ip", "etherip": "etherip", "gtp": "gtp", "mpls": "mpls", "pseudowire": "mpls:eth",
    "pseudowire_control_word": "mpls:eth", "mpls_in_udp": "udp:mpls", "pppoe": "pppoes:ppp", "e_tag": "etag",
    "vn_tag": "vntag", "fabricpath": "cfp", "trustsec": "cmd", "trill": "trill", "mac_in_mac": "ieee8021ah",
    "macsec_without_encryption": "macsec", "gre_in_mpls": "mpls:ip:gre", "cooked": "sll", "cooked_2": "sll",
    "raw_ip": "raw", "loopback": "null", "ppp": "ppp", "cisco_hdlc": "chdlc", "nflog": "nflog",
}  # fmt: skip
"""What Wireshark calls the headers of a form."""
TOLD = dict.fromkeys(NAMES, "udp.port==8472,vxlan") | {
    "pseudowire": "mpls.label==17,pwethnocw",
    "pseudowire_control_word": "mpls.label==17,pwethcw",
}
"""What has to be told to Wireshark, which guesses otherwise."""


@pytest.fixture(scope="module")
def dissected(frames: list[bytes], tmp_path_factory: pytest.TempPathFactory) -> dict[str, list[list[str]]]:
    """For each form, the headers, TCP sequence number and payload size that Wireshark finds in each of its frames."""
    file = tmp_path_factory.mktemp("forms") / "frames.pcapng"
    small = [frame for frame in frames if len(frame) <= LARGEST]
    found: dict[str, list[list[str]]] = {}
    for told, forms in groupby(sorted(NAMES, key=TOLD.__getitem__), TOLD.__getitem__):
        names = list(forms)
        # One file has several forms, each captured at an interface of its own.
        interfaces = b"".join(interface(link=FORMS[form].link_type) for form in names)
        blocks = (enhanced(one, number=at) for at, form in enumerate(names) for one in in_form(form, small))
        file.write_bytes(section() + interfaces + b"".join(blocks))
        options = ["-d", told, "-o", "tcp.desegment_tcp_streams:false", "-o", "ip.defragment:false"]
        fields = ("frame.interface_id", "frame.protocols", "tcp.seq_raw", "tcp.len")
        wanted = [option for field in fields for option in ("-e", field)]
        asked = ["tshark", "-n", "-r", str(file), *options, "-T", "fields", *wanted]
        for line in subprocess.run(asked, capture_output=True, text=True, check=True).stdout.splitlines():
            number, *seen = line.split("\t")
            found.setdefault(names[int(number)], []).append(seen)
    return found


@pytest.mark.skipif(shutil.which("tshark") is None, reason="tshark is not installed")
@pytest.mark.parametrize("form", NAMES)
def test_wireshark_sees_the_headers_that_are_meant_and_the_same_segments(
    form: str, dissected: dict[str, list[list[str]]], frames: list[bytes], plain: list[Segment]
) -> None:
    seen = dissected[form]
    small = [segment for frame, segment in zip(frames, plain, strict=True) if len(frame) <= LARGEST]
    assert [(int(seq), int(size)) for _, seq, size in seen] == [(seq, len(data)) for _, seq, _, data in small]
    assert [stack for stack, *_ in seen if f":{NAMES[form]}" not in f":{stack}"] == []


MACSEC = ethernet(bytes.fromhex("2c00 00000009 0242ac1100020001") + bytes(60), kind=0x88E5)
IN_VXLAN = FORMS["vxlan"].frames(ethernet(ipv4(tcp(b"payload"))))[0]
UNREAD = [
    (MACSEC, "macsec"),
    (ethernet(ipv4(bytes(40), protocol=50)), "ipsec"),
    (ethernet(ipv4(udp(bytes(40), ports=(4500, 4500)), protocol=17)), "ipsec"),
    *((ethernet(part), "ipsec") for part in fragments4(bytes(64), [32], protocol=50)),
    (FORMS["gre"].frames(MACSEC)[0], "macsec"),
    (ethernet(ipv4(udp(bytes(40), ports=(51820, 40_000)), protocol=17)), "wireguard"),
    (ethernet(ipv4(udp(bytes(40), ports=(40_000, 1701)), protocol=17)), "l2tp"),
    (ethernet(ipv4(udp(bytes(40), ports=(40_000, 37008)), protocol=17)), "tzsp"),
    (ethernet(bytes(60), kind=0x1234), "ethertype_0x1234"),
    (ethernet(struct.pack(">BBHHH", 0x11, 0, 7, 42, 0x00FD) + bytes(40), kind=0x8864), "ppp_0x00fd"),
    (IN_VXLAN[:52], "cut_in_tunnel"),
    (ethernet(b"\0\7\x81\0" * 40, kind=0x8100), "too_many_tunnels"),
    (ethernet(ipv4(ipv4(ipv4(ipv4(ipv4(ipv4(ipv4(ipv4(b"", protocol=4), protocol=4), protocol=4), protocol=4),
     protocol=4), protocol=4), protocol=4), protocol=4)), "too_many_tunnels"),
    (ethernet(bytes(46), kind=0x0806), None),
    (ethernet(bytes(46), kind=0x88CC), None),
    (ethernet(bytes.fromhex("424203") + bytes(40), kind=38), None),  # spanning tree
    (ethernet(bytes.fromhex("aaaa0300000c2000") + bytes(40), kind=48), None),  # CDP
    (ethernet(ipv4(udp(bytes(40), ports=(40_000, 53)), protocol=17)), None),
    (ethernet(ipv4(udp(bytes(40), ports=(4789, 53)), protocol=17)), None),
    (ethernet(ipv4(udp(bytes(40), ports=(40_000, 4789)), protocol=17)), None),  # no VXLAN: its flag is missing
    (FORMS["gre"].frames(ethernet(bytes(46), kind=0x0806))[0], None),
]  # fmt: skip


@pytest.mark.parametrize(("frame", "what"), UNREAD)
def test_what_could_hide_traffic_is_counted_by_what_it_is(frame: bytes, what: str | None) -> None:
    found, rejected, fragments = find_segments(block_of([frame, ethernet(ipv4(tcp())), frame]), (1801,))
    assert {name: count for name, count in rejected.not_judged.items() if count} == ({what: 2} if what else {})
    assert (found.frame.tolist(), rejected.reason, len(fragments.frame)) == ([2], [], 0)


@pytest.mark.parametrize("size", range(14, len(IN_VXLAN) + 1))
def test_a_frame_that_is_cut_in_a_tunnel_is_told_or_gives_what_it_has(size: int) -> None:
    found, rejected, _ = find_segments(block_of([IN_VXLAN[:size]]), (1801,))
    inner = 14 + 20 + 8 + 8  # of the bytes before the inner frame
    assert len(rejected.frame) == (14 < size < 34 or inner + 14 <= size < inner + 54)
    assert sum(rejected.not_judged.values()) == (42 <= size < inner + 14)
    assert len(found.frame) == (size >= inner + 54)
    if len(found.frame):
        assert (int(found.captured[0]), int(found.length[0])) == (size - inner - 54, 7)


def test_other_fragments_of_udp_are_other_traffic_and_lost_ones_of_a_tunnel_are_not(tmp_path: Path) -> None:
    """A datagram to another port that lacks a fragment is no fault; one to a tunnel's port is."""
    kept = [fragments4(udp(bytes(100), ports=(40_000, port)), [48], identification=port)[0] for port in (53, 4789)]
    whole = fragments4(udp(bytes(100), ports=(40_000, 2049)), [48], identification=9, protocol=17)
    parts = [part[:9] + b"\x11" + part[10:] for part in kept]
    file = tmp_path / "fragments.pcap"
    file.write_bytes(pcap(records([*map(ethernet, parts + whole), ethernet(ipv4(tcp()))])))
    tables = derived(file)
    assert tables["quarantine"].select("frame_number", "reason").rows() == [(2, "ip_fragment")]
    assert tables["captures"].select("segment_count", "other_count").row(0) == (1, 3)
    assert tables["books"].filter(~tables["books"]["balanced"]).height == 0


def test_the_console_says_first_what_was_not_read(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    file = tmp_path / "mirror.pcap"
    file.write_bytes(pcap(records([MACSEC] * 1234 + [ethernet(bytes(46), kind=0x0806)])))
    assert main.main(["look", str(file)]) == 0
    said = capsys.readouterr().out
    assert said.startswith(f"{file}: 1,234 frames were not read: MACsec 1,234. No transactional message was found")


def test_a_capture_that_is_read_says_what_it_came_through(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    simulate(str(tmp_path), 5, 40, encapsulation="erspan_3")
    (file,) = tmp_path.glob("*.pcap")
    with file.open("ab") as end:
        end.write(pcap(records([MACSEC]))[24:])
    assert main.main(["look", str(file)]) == 0
    said = capsys.readouterr().out
    assert not said.startswith(str(file))
    assert f"unread frames         {file}: 1 frame was not read: MACsec 1\n" in said
    captures = derived(file)[CAPTURES.name]
    read = captures["segment_count"][0]
    assert captures["tunnels"].to_list() == [[{"what": "erspan", "records": read}]]


def test_the_simulator_names_its_forms(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main.main(["simulate", "--out", str(tmp_path), "--encapsulation", "vxlam"]) == 2
    assert "plain, vlan, qinq" in capsys.readouterr().err
