"""What runs inside a sandbox, on the standard library alone."""
