"""Makes a Wireshark dissector in Lua from the declarations in `schemas` and the rules in `udfs.msmq.violations`.

The files in `core` are written by hand and contain only what no declaration says. No table, capture or Spark comes in.
"""
