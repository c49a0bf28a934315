"""Turns the bytes of a capture into rows, without Spark: `capture` → `network` → `tcp` → `msmq`, driven by `passes`.

Only `on_spark` knows Spark. Nothing here reads or writes a table, or imports `jobs`.
"""
