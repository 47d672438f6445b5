"""What the service tells of itself to machines: metrics and traces."""
