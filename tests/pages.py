"""The page of a report of the demonstration's morning, made in this process; shared by the tests of the page."""

import itertools
import re
from collections.abc import Mapping
from html import unescape
from pathlib import Path
from typing import Any
from unittest import mock

import polars as pl
from warehouses import derived

from jobs.cli.config import Config
from jobs.cli.names import Names
from jobs.commands import page
from jobs.engines.in_process import InProcess
from jobs.report_page import render
from udfs.report import findings, flow, pictures, sessions
from udfs.report import page as chosen

HOSTILE = "</script><script>alert(1)</script><img src=x onerror=alert(2)>'\"{{7*7}}\u2028\u202e\x1b[2J\x85\U000e0041\n"
ORDERS, STOCK = (f"DIRECT=OS:hub\\private$\\{name}" for name in ("orders", "stock"))
ORIGINAL, COPY = "10.20.0.3", "10.20.0.123"
LISTED, LOST, PENDING, ACCEPTED = 5, 21, 125, 76
Tables = Mapping[str, pl.DataFrame]


def morning_tables(captures: Path) -> Tables:
    """Returns the tables of the demonstration; two of its pending messages and the clone's incident are of STOCK."""
    tables = derived(f"{captures}/*.pcap")
    outcomes, incidents = (tables[name].to_dicts() for name in ("outcomes", "incidents"))
    pending = (row for row in outcomes if row["outcome"] == "pending")
    for row in sorted(pending, key=lambda row: row["first_seen_at"])[-2:]:
        row["destination_queue"] = STOCK
    next(row for row in incidents if row["lost_messages"])["destination_queues"].append(STOCK)
    return tables | {
        name: pl.DataFrame(rows, tables[name].schema)
        for name, rows in (("outcomes", outcomes), ("incidents", incidents))
    }


def hostile(tables: Tables) -> Tables:
    """Returns tables whose texts from outside end in HOSTILE; some findings are in no incident, and bytes miss."""
    found = {name: rows.to_dicts() for name, rows in tables.items()}
    for row in itertools.chain(*found.values()):
        for name in ("label", "uri", "destination_queue", "explanation"):
            if row.get(name):
                row[name] += HOSTILE
    for row in found["incidents"]:
        row["destination_queues"] = [name + HOSTILE for name in row["destination_queues"]]
    for packet in itertools.chain(*(row["witness"] for name in ("incidents", "findings") for row in found[name])):
        packet["uri"] = packet["uri"] and packet["uri"] + HOSTILE
    refused = next(row for row in found["findings"] if row["kind"] == "out_of_order")
    nowhere = {"role": "not_found", "stream_id": "10.9.9.9:1>10.9.9.8:2#0", "stream_offset": 77}
    alone = refused | {"incident_id": None, "witness": [nowhere, *refused["witness"]]}
    found["findings"] += [alone | {"severity": severity} for severity in ("error", "warning", "warning")]
    found["findings"].append(alone | {"kind": "resend_schedule", "severity": "info"})
    first = refused["witness"][0]
    found["stream_gaps"].append({"stream_id": first["stream_id"], "stream_offset": first["stream_offset"], "length": 9})
    return {name: pl.DataFrame(rows, tables[name].schema) for name, rows in found.items()}


def names_of(tables: Tables) -> Names:
    """Returns names for the machines of the clone and for the hub, and for one queue."""
    cloned = next(row for row in tables["incidents"].to_dicts() if row["lost_messages"])
    sender, hub = cloned["session_id"].split("->")
    return Names({sender: "West", COPY: "Spare", hub: "Hub"}, {STOCK.lower(): "Shelves"})


def report(tables: Tables, names: Names | None = None, **options: Any) -> str:
    """Returns the page, with LISTED messages in each list."""
    config = Config.load({"warehouse": "w"} | options, None)
    engine = InProcess(load=lambda table, *_: tables[table.name])
    with mock.patch.object(chosen, "LISTED_MESSAGES", LISTED):
        return render.render(page.values(engine, config, "w", names or Names()), names=names)


def small_report(tables: Tables, names: Names) -> str:
    """Returns the page with pictures of few points, which a browser draws and lists sooner."""
    with mock.patch.object(pictures, "DRAWN_POINTS", 100):
        return report(tables, names)


def limited_report(tables: Tables) -> str:
    """Returns the page of hostile tables, with less room than they have findings and sessions."""
    with (
        mock.patch.object(findings, "LISTED_FINDINGS", 1),
        mock.patch.object(sessions, "LISTED_SESSIONS", 2),
        mock.patch.object(flow, "DRAWN_SESSIONS", 1),
        mock.patch.object(pictures, "DRAWN_POINTS", 50),
    ):
        return report(hostile(tables), since="2026-03-03 08:00:00")


def said(html: str, section: str = "") -> str:
    """Returns the text of the page, or of one section, with single spaces; entities and times stand for themselves."""
    text = re.sub(r"[ \n]+", " ", unescape(re.sub(r"</?time[^>]*>", "", html)))
    return text.partition(f'<section id="{section}"')[2].partition("</section>")[0] if section else text
