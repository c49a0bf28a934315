"""Says how capture programs name their files."""

OF_SERIES = r"^(?P<series>.*)_(?P<number>\d{5,9})_(?P<began>\d{14})(?:\.[^/]*)?$"
"""A file of a series of Wireshark or dumpcap: the series, its number in it, and the second in which it began."""
