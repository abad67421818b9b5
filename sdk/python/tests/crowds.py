"""A server that takes many connections at once."""

from __future__ import annotations

from http.server import ThreadingHTTPServer


class CrowdServer(ThreadingHTTPServer):
    """An HTTP server with a thread per connection.

    With the default backlog of 5, the kernel drops some of many simultaneous connections, and establishes them only
    after 1 to 31 s.
    """

    request_queue_size = 128
