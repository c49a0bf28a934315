"""Reads captures into packets: index a file, extract segments and preframe them, defragment, assemble connections.

`flow` runs these passes in any engine; `captures` and `connections` decide what is read, and from where it goes on.
"""
