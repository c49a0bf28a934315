"""Collects what reports and summaries tell, and balances the books: the same over the tables of any engine."""
