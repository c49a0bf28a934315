"""Names the release, and hashes the program's code, so that what another version of it left is recognized."""

import hashlib
from functools import cache
from importlib.abc import Traversable
from importlib.resources import files

VERSION = "0.1.0"
"""The release; the package's metadata reads it from here."""
_PACKAGES = ("schemas", "udfs", "jobs")
_COMPILED = ("__pycache__", ".pyc")
_RESULTS = ("engine", "replaying", "steps/decode.py", "steps/replay.py")
"""The parts of `jobs` that decide which rows the derived tables get."""
_NOT_RESULTS = ("report", "report.py")


@cache
def program_hash() -> str:
    """Returns a hash of all code."""
    return hashlib.sha256(b"".join(_code(files(package)) for package in _PACKAGES)).hexdigest()


@cache
def results_hash() -> str:
    """Returns a hash of the code that decides what `decode`, `replay` and the books compute.

    A changed rule derives the tables again; a change of the report, the command line or the simulator does not.
    """
    places = [files("schemas"), files("udfs"), *(files("jobs").joinpath(*part.split("/")) for part in _RESULTS)]
    return hashlib.sha256(b"".join(_code(place, _NOT_RESULTS) for place in places)).hexdigest()


def _code(place: Traversable, without: tuple[str, ...] = ()) -> bytes:
    """Returns a file's bytes, or those of a folder's files in order; the package may be in a zip."""
    if not place.is_dir():
        return place.read_bytes()
    inside = sorted(place.iterdir(), key=lambda one: one.name)
    return b"".join(
        _code(one, without) for one in inside if not one.name.endswith(_COMPILED) and one.name not in without
    )
