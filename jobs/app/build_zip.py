"""Writes the packages as one zip for `spark-submit --py-files`, where a wheel fails in the workers."""

import sys
from pathlib import Path
from zipfile import ZIP_DEFLATED, ZipFile

_PACKAGES = ("schemas", "udfs", "jobs", "conf")
_KINDS = (".py", ".toml", ".conf", ".html", ".css", ".js", ".lua", ".sql", "")


def write_archive(path: Path) -> None:
    """Writes the packages and their data to a zip, in the order of their names."""
    root = Path(__file__).parents[2]
    path.parent.mkdir(parents=True, exist_ok=True)
    with ZipFile(path, "w", ZIP_DEFLATED) as archive:
        for package in _PACKAGES:
            for file in sorted((root / package).rglob("*")):
                if file.is_file() and file.suffix in _KINDS:
                    archive.write(file, file.relative_to(root))


if __name__ == "__main__":
    write_archive(Path(sys.argv[1]))
