"""Names the release, and hashes the program's code, so that what another version of it left is recognized."""

import hashlib
import re
from functools import cache
from importlib.abc import Traversable
from importlib.resources import files

VERSION = "2.0.0"
"""The release; the package's metadata reads it from here."""
_PACKAGES = ("schemas", "udfs", "jobs")
_COMPILED = ("__pycache__", ".pyc")
RESULTS = (
    *("schemas", "udfs/arrow", "udfs/frames", "udfs/msmq", "udfs/decode", "udfs/replay"),
    *("udfs/report/balancing.py", "udfs/report/books.py", "udfs/report/naming.py", "jobs/engines"),
    *("jobs/commands/decode.py", "jobs/commands/replay.py", "jobs/commands/reconcile.py", "jobs/commands/naming.py"),
)
"""The parts that decide which rows the derived tables get."""
_SAID = re.compile(rb'^[ \t]*r?"""(?s:.*?)"""[ \t]*$|^[ \t]*#.*$|  # .*$', re.MULTILINE)
"""Docstrings and comments, as this code writes them."""
_EMPTY_LINES = re.compile(rb"\n\s*\n")


@cache
def program_hash() -> str:
    """Returns a hash of all code."""
    return hashlib.sha256(b"".join(_code(files(package)) for package in _PACKAGES)).hexdigest()


@cache
def results_hash() -> str:
    """Returns a hash of the code that decides what `decode`, `replay` and the books compute, without what it says.

    A changed rule derives the tables again. A change of a comment, the report, the command line or the simulator does
    not, nor one of the passes that read captures: their rows are not derived again.
    """
    parts = (part.split("/") for part in RESULTS)
    places = (files(package).joinpath(*inside) for package, *inside in parts)
    return hashlib.sha256(b"".join(without_words(_code(place)) for place in places)).hexdigest()


def without_words(code: bytes) -> bytes:
    """Returns code without comments and docstrings."""
    return _EMPTY_LINES.sub(b"\n", _SAID.sub(rb"", code))


def _code(place: Traversable) -> bytes:
    """Returns a file's bytes, or those of a folder's files in order; the package may be in a zip."""
    if not place.is_dir():
        return place.read_bytes()
    inside = sorted(place.iterdir(), key=lambda one: one.name)
    return b"".join(_code(one) for one in inside if not one.name.endswith(_COMPILED))
