"""Declares wire layouts, enumerations and tables, as data."""
