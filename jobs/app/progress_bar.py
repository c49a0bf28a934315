"""Shows a spinner, the number of the step and the elapsed time on a terminal, if `rich` is installed."""

import os
import sys
from typing import TYPE_CHECKING, Self

if TYPE_CHECKING:
    from rich.progress import Progress

_BAR = 20
_TAKEN = _BAR + 14
"""Characters of a line beside the title and what the step is doing."""


class ProgressBar:
    """Draws one bar for the steps of a command; lines that are written meanwhile stand above it.

    Draws on a copy of stderr, because stderr leads to a file while the JVM starts.
    """

    def __init__(self, progress: "Progress") -> None:
        """Starts to draw."""
        self._progress = progress
        self._task = progress.add_task("", total=None, doing="")
        self._title = ""
        progress.start()

    @classmethod
    def of_terminal(cls) -> Self | None:
        """Returns a bar on stderr, or None if that is no terminal or `rich` is not installed."""
        if not sys.stderr.isatty():
            return None
        try:
            from rich.console import Console  # noqa: PLC0415 - optional
            from rich.progress import BarColumn, Progress, SpinnerColumn, TextColumn, TimeElapsedColumn  # noqa: PLC0415
        except ImportError:
            return None
        columns = (
            SpinnerColumn(),
            BarColumn(bar_width=_BAR),
            TimeElapsedColumn(),
            TextColumn("{task.description}  {task.fields[doing]}", markup=False),
        )
        console = Console(file=os.fdopen(os.dup(sys.stderr.fileno()), "w"), highlight=False)
        return cls(Progress(*columns, console=console, transient=True, redirect_stdout=False, redirect_stderr=False))

    def begin(self, title: str, number: int, of: int) -> None:
        """Shows that step `number` of `of` begins."""
        self._title = title
        self._progress.update(self._task, description=title, total=of, completed=number - 1, doing="")

    def show(self, doing: str) -> None:
        """Shows what the step is doing, without the step's name and as far as there is room."""
        room = max(self._progress.console.width - _TAKEN - len(self._title), 0)
        self._progress.update(self._task, doing=doing.rpartition(": ")[2][:room])

    def write(self, line: str) -> None:
        """Writes a line above the bar."""
        self._progress.console.print(line, markup=False, soft_wrap=True)

    def close(self) -> None:
        """Removes the bar."""
        self._progress.stop()
        self._progress.console.file.close()
