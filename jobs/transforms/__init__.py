"""DataFrame to DataFrame: no session, no I/O, no action."""
