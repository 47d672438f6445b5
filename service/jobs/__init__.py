"""Work outside the event loop: a pool of processes that can be killed at any instant."""
