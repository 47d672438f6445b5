"""``python -m arenaplan``: the command line where the script ``arenaplan`` is not in the path."""

from service.cli.main import main

if __name__ == "__main__":
    main()
