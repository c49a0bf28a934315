"""Makes a Wireshark dissector in Lua from the declarations in `schemas` and the rules in `udfs.msmq.violations`.

`core.lua` is written by hand and contains only what no declaration says; no table, capture or Spark comes in here.
"""
