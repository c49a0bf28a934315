"""Shows every conversation once, by clocks that do not step back."""
