"""Writes texts as words of a shell."""

import os
import shlex


def in_shell(text: str) -> str:
    """Returns the text as a word of bash or zsh, in which every character can be seen and none does anything."""
    if text.isprintable():
        return shlex.quote(text)
    quoted = text.replace("\\", "\\\\").replace("'", "\\'")
    shown = (c if c.isprintable() else "".join(f"\\{byte:03o}" for byte in os.fsencode(c)) for c in quoted)
    return f"$'{''.join(shown)}'"
