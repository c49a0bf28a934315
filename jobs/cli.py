"""The console script `msmq-replay COMMAND …`."""

import sys
from collections.abc import Sequence

from jobs.app import command
from jobs.steps import decode, decode_packet, ingest, maintain, nightly, repair, replay, report, simulate, status

COMMANDS = {
    "nightly": nightly,
    "ingest": ingest,
    "decode": decode,
    "replay": replay,
    "report": report,
    "status": status,
    "repair": repair,
    "maintain": maintain,
}
USAGE = """usage: msmq-replay COMMAND [options]

  nightly        ingest, decode, replay and report in order
  ingest         captures into captures, streams, stream_gaps, packets, pings, quarantine, books
  decode         packets into messages, acks, handshakes, session_acks
  replay         messages into ends, senders, verdicts, sequences, states, sessions, transactions, findings
  report         all of these into one HTML file
  status         what was read, what is pending, what failed and why
  repair         finish what a killed run left
  maintain       put small files together, remove what is no longer needed
  simulate       captures of simulated queue managers, with the truth beside them
  decode-packet  one packet, as hexadecimal or in a file, as an annotated tree

msmq-replay COMMAND --help shows the options."""


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the command that the arguments name; returns the exit code."""
    name, *rest = (sys.argv[1:] if arguments is None else arguments) or [""]
    if name in ("-h", "--help"):
        print(USAGE)  # noqa: T201 - the result
        return 0
    if name == "simulate":
        return command.main_alone(name, simulate.run, rest)
    if name == "nightly":
        return nightly.main(rest)
    if name == "decode-packet":
        return decode_packet.main(rest)
    if name not in COMMANDS:
        print(USAGE, file=sys.stderr)  # noqa: T201 - this is the terminal's
        return 2
    return command.main(name, COMMANDS[name].run, rest)


def script() -> None:
    """Run the command; ends the process only when it failed, as a Databricks task wants it."""
    if code := main():
        sys.exit(code)


if __name__ == "__main__":
    sys.exit(main())
