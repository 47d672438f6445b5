"""The ways in from outside: an HTTP service and a command line around `solver`."""
