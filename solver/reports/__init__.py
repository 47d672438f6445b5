"""What is told about plans and networks: facts for tables, documents and pages, without any search.

    rows         the facts of a plan, as terminal, page and JSON print them
    arenas       bytes by kind, the worst step, the map of an arena; allocation and recycling; levels
    records      steps that run again, transfers between memories, homes
    comparison   the differences between two plans, or two deployments
    budget       limits that a build enforces
    verdict      what a capacity comes to, and the curve of memory against time
    validation   what training in the arena showed, and the broken promises of a plan

A module is loaded by those who print it: nothing is imported here.
"""
