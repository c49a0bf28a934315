"""Runs steps in two ways: over DataFrames and Delta tables on Spark, or over Arrow tables in this process.

Only `on_spark` may use a Spark session; what publishes a run's tables safely is in `jobs.warehouse`.
"""
