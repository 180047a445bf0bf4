"""The doors of a running engine: HTTP and a Unix socket."""
