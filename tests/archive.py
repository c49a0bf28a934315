"""Makes the zip of the packages for spark-submit --py-files: `python tests/archive.py TO`."""

import py_compile
import sys
from pathlib import Path
from zipfile import ZIP_DEFLATED, ZipFile

ROOT = Path(__file__).parents[1]
_PACKAGES = ("schemas", "udfs", "jobs", "conf")


def write_archive(to: Path) -> None:
    """Writes the packages' files and, beside each module, its bytecode.

    Python keeps no bytecode of modules that it imports from a zip: each process of a worker would compile them all.
    One of another release ignores this bytecode.
    """
    compiled = to.with_suffix(".pyc")
    with ZipFile(to, "w", ZIP_DEFLATED) as archive:
        for file in sorted(file for package in _PACKAGES for file in (ROOT / package).rglob("*")):
            name = file.relative_to(ROOT)
            if file.is_dir() or file.suffix == ".pyc":
                continue
            archive.write(file, name)
            if file.suffix == ".py":
                unchecked = py_compile.PycInvalidationMode.UNCHECKED_HASH
                py_compile.compile(str(file), str(compiled), str(name), doraise=True, invalidation_mode=unchecked)
                archive.write(compiled, name.with_suffix(".pyc"))
    compiled.unlink()


if __name__ == "__main__":
    write_archive(Path(sys.argv[1]))
