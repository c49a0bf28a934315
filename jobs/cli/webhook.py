"""Posts what a run found, or that it failed, to the URL of --webhook: as JSON, never with the body of a message."""

import json
import time
from collections.abc import Mapping, Sequence
from ipaddress import ip_address
from threading import Thread
from typing import Any
from urllib.parse import urlsplit

from jobs.cli.code_version import VERSION
from jobs.cli.logs import progress, warn

FIELDS = {
    "text": "What to show to people, in a few lines. Chat programs read nothing into it: what it quotes of captures "
    "stands in a block of code, with `&`, `<`, `>` and backticks replaced.",
    "program": "`msmq-replay`.",
    "version": "Its version.",
    "command": "`nightly` or `look`.",
    "exit_code": "3: `--fail-on` matched; 2: wrong use; 1: the run failed.",
    "matched": "Words of `--fail-on` that hold; `anything` is replaced by what it stands for.",
    "error": "Why the run failed, where it did: the fields from here on are null then.",
    "headline": "The headline, as on the console.",
    "no_data": "A sentence where the newest captures hold no message, or no capture is new.",
    "period": "`first` and `last` record in the captures.",
    "senders": "How many senders the captures show.",
    "queues": "How many queues they show.",
    "lost": "Messages that are lost.",
    "stuck": "Messages that are refused again and again.",
    "unacknowledged": "Messages that their receiver never acknowledged.",
    "unjudged": "Arrivals of other messages, which were not judged: no packet names their receiver.",
    "confirmed": "Delivered messages that an acknowledgment confirms.",
    "unconfirmed": "Other messages that were accepted, wait or are in doubt.",
    "outcomes": "Messages by outcome.",
    "new_captures": "Captures that the run read.",
    "newest_captures": "What the captures of the last run that read any hold and lack.",
    "worst_incidents": "What happened, the worst first, as in `--json`: addresses, queues, labels, times, what to do, "
    "and frames.",
    "report": "Where the report is.",
}
"""The keys of the JSON object that is posted, and what they mean."""
_OWN = ("text", "program", "version", "command", "exit_code", "matched", "error")
_ATTEMPTS = 3
_WAIT_S = 2.0
"""Seconds before the second attempt; twice that before the third."""
_PATIENCE_S = 10
"""Seconds to wait for the server, each time."""
_DEADLINE_S = 45
"""Seconds after which a run does not wait for a server that answers byte by byte."""
_LONGEST = 3_000
"""Characters of the block of code: chat programs refuse long texts."""
_LONGEST_REASON = 200
_OK, _TOO_MANY, _SERVER_ERROR = range(200, 300), 429, 500


def refusal(url: str) -> str:
    """Returns why nothing may be posted to a URL, without the URL, which may hold a secret; an empty text if it may."""
    try:
        parts = urlsplit(url)
        port_is_right = parts.port != 0
    except ValueError:
        return "--webhook is no URL."
    if not (url.isascii() and url.isprintable() and " " not in url and parts.hostname and port_is_right):
        return "--webhook is no URL: give https://HOST/PATH."
    if parts.username is not None or parts.password is not None:
        return "--webhook cannot have a user or a password in it."
    if parts.scheme == "https" or (parts.scheme == "http" and _is_loopback(parts.hostname)):
        return ""
    return "--webhook needs https; http is for this machine alone (localhost, 127.0.0.1, [::1])."


def _is_loopback(host: str | None) -> bool:
    try:
        return host == "localhost" or ip_address(host or "").is_loopback
    except ValueError:
        return False


def payload(
    command: str, exit_code: int, words: Sequence[str], lines: Sequence[str], summary: Mapping[str, Any]
) -> str:
    """Returns the JSON object for what a run found; `lines` are the first of the console."""
    why = f"--fail-on: {', '.join(words)}" if words else "the books do not balance"
    found = {name: summary.get(name) for name in FIELDS if name not in _OWN}
    own = _own(command, exit_code, f"msmq-replay {command}: {why}", lines)
    return json.dumps(own | {"matched": list(words), "error": None} | found)


def failure(command: str, exit_code: int, error: str) -> str:
    """Returns the JSON object for a run that failed."""
    own = _own(command, exit_code, f"msmq-replay {command} failed", [error])
    return json.dumps(own | {"matched": [], "error": error} | {name: None for name in FIELDS if name not in _OWN})


def _own(command: str, exit_code: int, title: str, lines: Sequence[str]) -> dict[str, Any]:
    shown = "\n".join(lines)
    shown = f"{shown[:_LONGEST]}…" if len(shown) > _LONGEST else shown
    for character, instead in (("&", "&amp;"), ("<", "&lt;"), (">", "&gt;"), ("`", "'")):
        shown = shown.replace(character, instead)
    text = f"{title}\n```\n{shown}\n```"
    return {"text": text, "program": "msmq-replay", "version": VERSION, "command": command, "exit_code": exit_code}


def post(url: str, body: str) -> None:
    """Posts the JSON object; warns where the server did not take it. What it answers is not read.

    There are few attempts, and none where the server refuses: only if it was not reached, is busy or has failed.
    """
    host = urlsplit(url).hostname
    said: list[str] = []
    thread = Thread(target=lambda: said.append(_post(url, body.encode())), daemon=True)
    thread.start()
    thread.join(_DEADLINE_S)
    why = said[0] if said else f"no whole answer after {_DEADLINE_S} s"
    if why:
        warn(f"--webhook: {host} did not take what was posted: {why}")
    else:
        progress(f"--webhook: posted to {host}")


def _post(url: str, body: bytes) -> str:
    """Returns why the server did not take it; an empty text if it did."""
    why, again = _try(url, body)
    for attempt in range(1, _ATTEMPTS):
        if not again:
            break
        time.sleep(_WAIT_S * attempt)
        why, again = _try(url, body)
    return why


def _try(url: str, body: bytes) -> tuple[str, bool]:
    """Returns why the server did not take it, and whether to try again."""
    from http.client import HTTPException  # noqa: PLC0415 - few runs post
    from urllib.error import HTTPError  # noqa: PLC0415 - the same
    from urllib.request import HTTPRedirectHandler, ProxyHandler, Request, build_opener  # noqa: PLC0415 - the same

    class NoRedirect(HTTPRedirectHandler):
        def redirect_request(self, *_: Any) -> None:
            """Follows no redirect: it could lead to a place that nobody has chosen."""

    direct = [ProxyHandler({})] if _is_loopback(urlsplit(url).hostname) else []
    headers = {"Content-Type": "application/json; charset=utf-8", "User-Agent": f"msmq-replay/{VERSION}"}
    try:
        request = Request(url, body, headers, method="POST")  # noqa: S310 - Config lets HTTPS pass, and HTTP to loopback
        with build_opener(NoRedirect, *direct).open(request, timeout=_PATIENCE_S) as answer:
            status = answer.status
    except HTTPError as error:
        status = error.code
        error.close()
    except OSError as error:  # also URLError, which has another error in it
        return f"{getattr(error, 'reason', error)}"[:_LONGEST_REASON], True
    except (HTTPException, ValueError) as error:  # what is not HTTP, in words that the server chooses
        return f"its answer is not HTTP ({type(error).__name__})", False
    if status in _OK:
        return "", False
    return f"status {status}", status == _TOO_MANY or status >= _SERVER_ERROR
