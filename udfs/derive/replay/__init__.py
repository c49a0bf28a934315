"""Finds what is judged together, and in which order; and writes down what was judged."""
