"""Pages for browsers, without scripts or assets from elsewhere."""
