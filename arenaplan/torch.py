"""PyTorch modules, as graphs. Needs the extra ``arenaplan[torch]``."""
