"""Applies names of queue managers and queues, and writes the skeleton of a file of them."""

import re
from collections import defaultdict
from ipaddress import ip_address

import polars as pl

from jobs.app.config import Config
from jobs.app.logs import progress
from jobs.app.names import Names, skeleton
from jobs.app.text_files import exists, write_text
from jobs.engine.engine import Engine, T
from jobs.engine.on_spark import engine_of
from jobs.warehouse.store import Warehouse
from schemas.messages import MESSAGES
from schemas.replay import ENDS
from udfs.derive.replay.ends import NULL_GUID

_DIRECT = re.compile(r"DIRECT=(?:OS|TCP|HTTPS?|SPX):/*([^\\/:]+)[\\/](?:.*[\\/])?([^\\/]+)$", re.IGNORECASE)
_SHOWN = 3
_MACHINES = ("source_queue_manager", "queue_manager_address")
_QUEUES = ("destination_queue", "admin_queue", "response_queue")


def step(warehouse: Warehouse, config: Config, names: Names) -> None:
    """Writes the skeleton of --names-skeleton, and in a catalog the view `names` if there are names."""
    if config.names_skeleton:
        kept = Names.read(config.names_skeleton) if exists(config.names_skeleton) else Names()
        write_text(config.names_skeleton, skeleton(_seen(engine_of(warehouse), kept.over(names))))
        progress(f"names: wrote {config.names_skeleton}")
    if names and warehouse.catalog_schema:
        create_view(warehouse, names)


def create_view(warehouse: Warehouse, names: Names) -> None:
    """Creates the view `names` (what, original, name): beside the tables of a catalog, else in the Spark session."""
    kind, name = "TEMP VIEW", "names"
    if warehouse.catalog_schema:
        kind, name = "VIEW", warehouse.registered("names")
    rows = ", ".join(f"({', '.join(map(_in_digits, row))})" for row in names.rows()) or "('', '', '')"
    where = "" if names else " WHERE false"
    warehouse.spark.sql(
        f"CREATE OR REPLACE {kind} {name} (what, original, name) AS "  # noqa: S608 - each value is in digits
        f"SELECT * FROM VALUES {rows} AS t(what, original, name){where}"
    )


def _in_digits(text: str) -> str:
    """Returns an expression of SQL with a text that may come from a capture, of which no character is in it."""
    return f"CAST(X'{text.encode().hex()}' AS STRING)"


def _seen(engine: Engine[T], names: Names) -> list[tuple[bool, str, str, str]]:
    """Returns what `skeleton` takes: all GUIDs, addresses and queues of the tables.

    A direct format name tells the machine and the queue. A response or an admin queue is the sender's own; a
    destination queue is the receiver's, unless the message names another queue manager.
    """
    seen = engine.bring(
        ends=engine.read(ENDS, "stream_id", "sender_guid", "address", "receiver_guid", "receiver_by_address"),
        queues=engine.distinct(engine.read(MESSAGES, "stream_id", *_MACHINES, *_QUEUES)),
    )
    ends = seen["ends"]
    receivers = ends.select("stream_id", receiver=pl.coalesce("receiver_guid", "receiver_by_address"))
    queues = seen["queues"].join(receivers, on="stream_id").select(*_MACHINES, *_QUEUES, "receiver").unique()
    hosts: dict[str, set[str]] = defaultdict(set)
    addresses: dict[str, set[str]] = defaultdict(set)
    guids: dict[str, set[str]] = defaultdict(set)
    for guid, address in ends.select("sender_guid", "address").unique().iter_rows():
        guids[address] |= {guid} - {None}
        if guid:
            addresses[guid].add(address)
    named: dict[str, str] = {}
    for sender, final, destination, admin, response, receiver in queues.iter_rows():
        addresses[sender] |= set()
        is_receivers = final in (None, NULL_GUID, receiver)
        for owner, queue in ((sender, admin), (sender, response), (receiver if is_receivers else None, destination)):
            if queue:
                host, named[queue] = _direct(queue)
                hosts[owner or ""] |= {host} - {""}

    def only(owner: str) -> str:
        return next(iter(hosts[owner])) if len(hosts[owner]) == 1 else ""

    return [
        *(
            (False, guid, names.queue_manager(guid) or only(guid), _about("at", places))
            for guid, places in addresses.items()
        ),
        *((False, address, names.queue_manager(address), _about("queue manager", of)) for address, of in guids.items()),
        *((True, queue, names.queue(queue) or name, "") for queue, name in named.items()),
    ]


def _about(word: str, known: set[str]) -> str:
    """Returns the word and up to three of what is known; an empty text where nothing is."""
    shown, more = sorted(known)[:_SHOWN], len(known) - _SHOWN
    return " ".join([word, *shown, *([f"and {more} more"] if more > 0 else [])]) if known else ""


def _direct(queue: str) -> tuple[str, str]:
    """Returns the machine and the queue that a direct format name tells; empty texts for what it does not."""
    found = _DIRECT.match(queue)
    if found is None:
        return "", ""
    host, name = found.groups()
    try:
        ip_address(host)
    except ValueError:
        return host, name
    return "", name
