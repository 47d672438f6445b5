"""What people see in a browser: pages without scripts or assets from elsewhere."""
