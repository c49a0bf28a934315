"""What things are: wire layouts, enumerations and tables, as data."""
