"""The commands: thin scripts over `steps`, which apply `transforms` to the tables of `warehouse`.

Options, logs and Spark's session are in `app`; what is done to bytes is in `udfs`.
"""
