"""Turns the bytes of a capture into rows, verdicts and a report: one room after another, the same on each engine.

`capture` → `network` → `tcp` → `msmq` are about bytes; `ingest`, `decode`, `replay` and `report` are the stages of a
message. Only `functions` knows Spark. Nothing here reads or writes a table, or imports `jobs`.
"""
