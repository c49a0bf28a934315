"""Finds who talks with whom and what is judged together, and puts it in one order, although captures hold it twice."""
