"""What is done to bytes: capture records, TCP, framing, headers and the acceptance rule."""
