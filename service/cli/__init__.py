"""The command line: what each command reads, writes, says, and how it exits."""
