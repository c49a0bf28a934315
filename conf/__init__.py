"""Defaults of the product: base.toml for the jobs, spark-defaults.conf for Spark."""
