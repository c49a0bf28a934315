"""Decides what a run of ingest reads, from where connections resume and which rows it replaces."""
