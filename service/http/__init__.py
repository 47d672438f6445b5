"""The HTTP service: routes, request bodies, kept answers, and what it says of itself."""
