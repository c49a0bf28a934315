"""Decides what a run of ingest reads, from where connections resume and which rows it replaces, once for two engines.

Only `on_spark` may use a Spark session; what publishes a run's tables safely is in `jobs.warehouse`.
"""
