"""``python -m service.cli``: the command line where the script ``arenaplan`` is not installed."""

from service.cli.main import main

if __name__ == "__main__":
    main()
