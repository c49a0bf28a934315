"""Runs an S3-compatible store, built from `tests/object_store` by Go, and reads the tables in one."""

import shutil
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from time import sleep
from typing import Any, NamedTuple, cast

import pytest
from warehouses import all_rows

_RECIPE = Path(__file__).parent / "object_store"
_BUILT_WITHIN_S = 400


class Server(NamedTuple):
    """A store that runs, and where it writes a line for each request."""

    lines: Path

    @property
    def environment(self) -> dict[str, str]:
        """The variables of the environment by which a process reaches the store."""
        address = self.lines.read_text().splitlines()[0]
        given = {"ENDPOINT_URL": address, "ACCESS_KEY_ID": "k", "SECRET_ACCESS_KEY": "s", "REGION": "us-east-1"}
        return {f"AWS_{name}": value for name, value in given.items()}

    def requests(self) -> list[str]:
        """The requests that it has answered so far."""
        return self.lines.read_text().splitlines()[1:]


@contextmanager
def running_store(folder: Path) -> Iterator[Server]:
    """Builds a store in the folder, and runs it with the bucket `lake`; it listens on loopback only."""
    go = shutil.which("go") or shutil.which("/usr/local/go/bin/go")
    if go is None:
        pytest.skip("There is no Go, which builds the object store of this test.")
    shutil.copytree(_RECIPE, folder, dirs_exist_ok=True)
    try:
        subprocess.run(
            [go, "build", "-o", "store", "."], cwd=folder, check=True, capture_output=True, timeout=_BUILT_WITHIN_S
        )
    except (subprocess.SubprocessError, OSError) as error:
        pytest.skip(f"Go cannot build the object store, for which it needs a module proxy or its cache: {error}")
    lines = folder / "requests.txt"
    with lines.open("w") as out, subprocess.Popen([folder / "store", "lake"], stdout=out) as running:
        try:
            while not lines.read_text().endswith("\n"):
                sleep(0.01)
            yield Server(lines)
        finally:
            running.terminate()


def tables_in(place: str) -> dict[str, list[dict[str, Any]]]:
    """Reads the rows of all tables in the store with delta-rs."""
    return all_rows(cast(Path, _At(place)))


class _At(str):
    """Joins as a path does."""

    __slots__ = ()

    def __truediv__(self, name: str) -> str:
        return f"{self}/{name}"
