"""Derives tables from tables with Polars: one function serves an engine in memory and Spark's tasks.

A function gets whole tables in memory, and in a task whole groups of larger ones, as it declares (`frames.derives`).
"""
