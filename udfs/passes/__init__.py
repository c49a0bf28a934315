"""The passes of ingest: index a file, extract segments, defragment, preframe, assemble connections.

Each takes and gives Arrow batches and keeps no state between calls, so Spark or a plain loop can run it.
"""
