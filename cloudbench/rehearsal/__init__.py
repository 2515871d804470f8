"""The clouds on this machine: stand-ins that answer the vendors' own SDKs over HTTP and really run the nodes."""
