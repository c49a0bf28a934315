"""Rows of a small report, as they are collected from the tables: a clone, a stuck branch, and one that was repaired."""

from collections import Counter, defaultdict
from typing import Any

from jobs.app.config import Config
from jobs.app.names import Names
from jobs.report_page import arrange
from jobs.report_page.render import render
from jobs.steps.headline import NOT_TOLD, headline_figures, located
from schemas.outcomes import Outcome, count_column

Row = dict[str, Any]
SECOND = 10**9
BEGAN = 1_772_523_000 * SECOND  # 2026-03-03 07:30 UTC
ENDED = BEGAN + 6_000 * SECOND
HUB, WEST, SOUTH, NORTH = (f"{digit * 8}-0000-4000-8000-{digit * 12}" for digit in "abcd")
ORDERS, STOCK = (f"DIRECT=OS:hub\\private$\\{name}" for name in ("orders", "stock"))
ADDRESSES = {WEST: "10.20.0.3", SOUTH: "fd00:20::2", NORTH: "10.20.0.1", HUB: "10.0.0.1"}
COPY = "10.20.0.99"
NAMES = Names({WEST: "West", SOUTH: "South", COPY: "Spare", HUB: "Hub"}, {STOCK.lower(): "Shelves"})
LISTED = 5
_FIGURES = ("lost", "pending", "stuck", "unknown", "repaired", "expired", "findings")


def at(minutes: float) -> int:
    """Returns the time so many minutes after the beginning."""
    return BEGAN + int(minutes * 60 * SECOND)


def key(address: str, offset: int) -> str:
    """Returns the key of a packet from an address to the hub."""
    return f"{f'[{address}]' if ':' in address else address}:50000>10.0.0.1:1801#0@{offset}"


def incident(name: str, place: int, source: str, severity: str, outcome: str, **more: Any) -> Row:
    """Returns an incident; `began` and `ended` are in minutes."""
    began, ended = more.pop("began"), more.pop("ended")
    row = dict.fromkeys(_FIGURES, 0) | {"cause": "message_missing", "ongoing": False, "sequences": 1, "witness": []}
    row |= {"incident_id": name, "place": place, "source_queue_manager": source, "session_id": f"{source}->{HUB}"}
    row |= {"severity": severity, "outcome": outcome, "tx_sequence": "2026-03-01T22:00:00Z#1", "advice": "Look."}
    times = {"began_ns": at(began), "ended_ns": at(ended)}
    return row | times | {"senders": [], "destination_queues": [ORDERS], "explanation": f"About {name}."} | more


def sender(address: str, first: float, last: float, *, suspected: bool) -> Row:
    """Returns one of the senders of an incident."""
    figures = {"messages": 9, "accepted": 6, "lost": 3, "suspected": suspected}
    return {"address": address, "first_ns": at(first), "last_ns": at(last)} | figures


def message(listed: str, outcome: str, place: int, source: str, minute: float, *witness: str, **more: Any) -> Row:
    """Returns a message of a list."""
    row: Row = {"list": listed, "outcome": outcome, "place": place, "tx_sequence_number": place, "numbers": 1}
    row |= {"tx_sequence": "2026-03-01T22:00:00Z#1", "source_queue_manager": source, "session_id": f"{source}->{HUB}"}
    row |= {"message_id": f"{source}\\{place}", "label": f"order {place}", "destination_queue": ORDERS, "arrivals": 1}
    row |= {"lost": listed == "lost", "stuck": False, "explanation": "It happened.", "witness": list(witness)}
    return row | {"first_ns": at(minute), "last_ns": at(minute)} | more


def messages() -> list[Row]:
    """Returns two lost messages of West, one from each machine, and forty that are stuck, the last two in `stock`."""
    others = (key(COPY, 10), key(ADDRESSES[WEST], 20)), (key(ADDRESSES[WEST], 30), key(COPY, 40))
    rows = [message("lost", "displaced", 1 + i, WEST, 55 + i, *both) for i, both in enumerate(others)]
    rows.append(message("pending", "awaited", 1, SOUTH, 35, message_id=None, label=None, arrivals=0))
    for place in range(2, 42):
        queue = STOCK if place > 39 else ORDERS
        own = key(ADDRESSES[SOUTH], place)
        rows.append(message("pending", "pending", place, SOUTH, 36, own, stuck=True, destination_queue=queue))
    return rows


def witness(text: str, minute: float, message_id: str, verdict: str) -> Row:
    """Returns what a report collects of a message that is a witness."""
    stream, _, offset = text.rpartition("@")
    row = dict.fromkeys(("reason", "ack_latency_ms", "ack_type", "message_class", "packet_type", "length"))
    row |= {"stream_id": stream, "stream_offset": int(offset), "captured_ns": at(minute) + 7, "message_id": message_id}
    row |= {"tx_sequence_id": 1, "incoming_tx_sequence_id": 1, "tx_sequence_number": 1, "acknowledged_message_id": None}
    row |= {"previous_tx_sequence_number": 0, "incoming_tx_sequence_number": 4, "verdict": verdict, "label": "order"}
    return row | {"uri": "/data/night.pcap", "capture_id": "c", "first_frame": 3, "last_frame": 3}


def collected() -> dict[str, list[Row]]:
    """Returns all rows of the report."""
    west = [sender(ADDRESSES[WEST], 1, 90, suspected=False), sender(COPY, 54, 80, suspected=True)]
    incidents = [
        incident("1" * 16, 1, WEST, "error", "lost", began=55, ended=56, lost=2, senders=west, ongoing=True)
        | {"destination_queues": [ORDERS, STOCK]},
        incident("2" * 16, 2, SOUTH, "error", "pending", began=35, ended=90, pending=41, stuck=40, ongoing=True)
        | {"senders": [sender(ADDRESSES[SOUTH], 2, 90, suspected=False)]},
        incident("3" * 16, 3, NORTH, "info", "repaired", began=12, ended=13, repaired=1),
    ]
    saved = messages()
    became = Counter(row["outcome"] for row in saved) | Counter({"delivered": 500})
    arrivals = [(10, "in_order", "", 300), (50, "in_order", "", 200), (55, "duplicate", "lost", 2)]
    arrivals += [(36, "out_of_order", "pending", 40), (90, "out_of_order", "pending", 9_000)]
    extent = {"first_ns": BEGAN, "last_ns": ENDED, "sessions": 3, "cut": False}
    first, step = arrange.steps(extent)
    rows: dict[str, list[Row]] = defaultdict(list)
    rows |= {
        "extent": [extent],
        "incidents": incidents,
        "incident_counts": [{"outcome": row["outcome"], "incidents": 1} for row in incidents],
        "saved_messages": saved,
        "listed_messages": [row for row in saved if row["place"] <= LISTED],
        "witnesses": [
            witness(text, minute, row["message_id"], verdict)
            for row in saved[:2]
            for text, minute, verdict in zip(row["witness"], _minutes(row), ("in_order", "duplicate"), strict=True)
        ],
        "arrivals": [
            {"step": (at(minute) - first) // step, "verdict": verdict, "reason": None, "fate": fate, "arrivals": many}
            for minute, verdict, fate, many in arrivals
        ],
        "outcome_counts": [{count_column(one): became[one.value] for one in Outcome} | {"told": True}],
        "places": [dict.fromkeys(("lost_since_ns", "stuck_since_ns", "lost_queue", "stuck_queue")) | _none()],
        "final_acks": [{"any": False}],
        "unjudged": [{"passing_through": 0, "unjudged": 0}],
        "caveats": [
            {"what": name, "reason": None, "many": 0, "bytes": 0}
            for name in ("missing", "mid_stream", "conflict", "unbalanced")
        ],
    }
    return rows


def _minutes(row: Row) -> tuple[float, float]:
    """Returns when the message that took the number of another one came, and when that came."""
    own = (row["first_ns"] - BEGAN) / 60 / SECOND
    return own - 1, own


def _none() -> Row:
    return {"lost": 2, "stuck": 40, "lost_queues": 1, "stuck_queues": 2}


def page(names: Names = NAMES) -> str:
    """Returns the report as HTML."""
    rows, config = collected(), Config.load({"warehouse": "w", "listed_messages": LISTED}, None)
    numbers = arrange.numbers(rows, only=False)
    outcomes: dict[str, int] = {outcome: numbers[count_column(outcome)] for outcome in Outcome}
    doubts = {name: numbers[name] for name in ("stuck", "missing_bytes", "unjudged", "errors")}
    figures = located(headline_figures(outcomes, **doubts), rows["places"][0], names)
    values = arrange.page(rows, rows["extent"][0], config, "w", None)
    values |= {"muted": [], "muted_findings": [], "not_told": NOT_TOLD, "numbers": numbers}
    return render(values | {"headline": figures._asdict()}, names=names)
