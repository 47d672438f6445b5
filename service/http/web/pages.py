"""Pages that explain the problem types."""

from __future__ import annotations

from html import escape

from service.problems import CATALOGUE, ProblemType

__all__ = ["problem_page", "problems_page"]

_PAGE = """<!doctype html>
<html lang="en">
<head>
<meta charset="utf-8">
<meta name="viewport" content="width=device-width, initial-scale=1">
<title>{title} · arenaplan</title>
<link rel="icon" href="{root}/static-offline-docs/favicon.png">
<style>
body {{ font: 1.05rem/1.6 system-ui, sans-serif; max-width: 46rem; margin: 3rem auto; padding: 0 1rem; }}
code {{ background: #8882; padding: .1em .3em; border-radius: .2em; }}
dt {{ margin-top: 1rem; }}
@media (prefers-color-scheme: dark) {{ body {{ background: #161616; color: #ddd; }} a {{ color: #8bf; }} }}
</style>
</head>
<body>
{content}
</body>
</html>
"""


def _page(title: str, content: str, root: str) -> str:
    return _PAGE.format(title=escape(title), content=content, root=escape(root, quote=True))


def problem_page(kind: ProblemType, root: str) -> str:
    """One problem type; `root` is the path prefix that a proxy strips."""
    content = (
        f"<h1>{escape(kind.title)}</h1>\n"
        f"<p><code>{kind.uri}</code>, status {kind.status}</p>\n"
        f"<p>{escape(kind.explanation)}</p>\n"
        f'<p><a href="{escape(root, quote=True)}/problems">All problem types</a></p>'
    )
    return _page(kind.title, content, root)


def problems_page(root: str) -> str:
    prefix = escape(root, quote=True)
    entries = "\n".join(
        f'<dt><a href="{prefix}{kind.uri}"><code>{kind.code}</code></a> '
        f"{escape(kind.title)} ({kind.status})</dt>"
        f"<dd>{escape(kind.explanation)}</dd>"
        for kind in CATALOGUE.values()
    )
    return _page("Problem types", f"<h1>Problem types</h1>\n<dl>\n{entries}\n</dl>", root)
