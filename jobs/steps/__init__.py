"""The work of each command: read tables, apply transforms, write tables.

How rows are computed is in `jobs.transforms`, how tables are written safely in `jobs.warehouse`.
"""
