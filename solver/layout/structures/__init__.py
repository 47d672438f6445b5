"""Problems of a special structure, each with the theorem that says what can be reached.

| module | structure | what is promised |
|---|---|---|
| `colouring` | all buffers take the same bytes | the bound: colouring of an interval graph |
| `chains` | at most two are live at a time | the bound: one on the floor, the other under the ceiling |
| `laminar` | any two lifespans are nested or apart | the bound: a stack |
| `classes` | any problem without pins | a layout in a few sorts, to have something |
| `recognise` | | which of them a problem has |

Each looks at an `Instance` and costs a few sorts. Nothing here is compiled.
"""
