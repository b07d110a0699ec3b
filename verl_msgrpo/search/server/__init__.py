"""A retrieval server that speaks Search-R1's protocol, and the indexes it serves."""
