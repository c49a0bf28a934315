"""Runs steps in two ways: over DataFrames and Delta tables on Spark, or over frames of Polars in this process."""
