"""A retrieval server that speaks Search-R1's protocol, and the indexes that it serves.

To be read along a request: options.py says what is served, endpoint.py where; app.py takes the
request, protocol.py reads and answers it, batching.py searches it with others in one of backends/.
And along the data: corpus.py reads passages and keeps them, index.py builds an index of them and
opens it.
"""
