"""Takes the picture of the README: `python tests/screenshot.py out/warehouse/report.html docs/report.png`."""

import json
import sys
from pathlib import Path
from tempfile import TemporaryDirectory

from browser import Browser


def main(page: Path, picture: Path) -> None:
    """Writes what a browser of 1280 by 900 points shows first, without the path to this checkout."""
    with TemporaryDirectory(ignore_cleanup_errors=True) as home, Browser(Path(home), 1280, 900) as browser:
        browser.colours("light")
        browser.open(page)
        browser.run(f"document.querySelector('header code').textContent = {json.dumps(str(page.parent))}")
        browser.picture(picture)


if __name__ == "__main__":
    main(Path(sys.argv[1]), Path(sys.argv[2]))
