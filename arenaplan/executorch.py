"""Memory plans for ExecuTorch's programs. Needs the extra ``arenaplan[executorch]``."""
