"""Runs steps in two ways: over DataFrames and Delta tables on Spark, or over frames of Polars in this process.

Only `on_spark` may use a Spark session; what publishes a run's tables safely is in `jobs.warehouse`.
"""
