"""Releases of dependencies with a fault that is publicly known: none is installed."""

import tomllib
from pathlib import Path

import pytest
from packaging.requirements import Requirement

_DECLARED = tomllib.loads(Path(__file__).parents[1].joinpath("pyproject.toml").read_text())["project"]["dependencies"]
_ADMITTED = {one.name: one.specifier for one in map(Requirement, _DECLARED)}


@pytest.mark.parametrize(
    ("package", "release"),
    [
        *(("jinja2", release) for release in ("2.11.3", "3.1.2", "3.1.3", "3.1.4", "3.1.5")),  # CVE-2025-27516 the last
        *(("pyarrow", release) for release in ("14.0.0", "15.0.0", "22.0.0", "23.0.0")),  # CVE-2026-25087 the last
        ("pandas", "1.0.3"),  # CVE-2020-13091
        ("numpy", "1.21.6"),  # CVE-2021-34141
    ],
)
def test_no_release_with_a_known_fault_is_admitted(package: str, release: str) -> None:
    assert release not in _ADMITTED[package]
