"""Hook of MkDocs: it rewrites links to files that are in the repository and not on the site.

A page may link to ``../../bench/results/psp/README.md``. The link works where the repository is read. On the
site, the link becomes the path as text. A path that does not exist is a warning, so the strict build fails.
"""

import logging
import os.path
import re
from typing import Any

LINK = re.compile(r"(?<!!)\[([^\]]*)\]\(((?:\.\./)+[^)#\s]+)(?:#[^)\s]*)?\)")
log = logging.getLogger("mkdocs.hooks.site")


def on_page_markdown(markdown: str, page: Any, config: Any, files: Any) -> str:
    """Replace links that leave ``docs`` by paths of the repository."""

    def replace(match: re.Match[str]) -> str:
        text, target = match[1], match[2]
        folder = os.path.dirname(os.path.join(config.docs_dir, page.file.src_uri))
        path = os.path.normpath(os.path.join(folder, target))
        root = os.path.dirname(config.docs_dir)
        if path.startswith(config.docs_dir + os.sep):
            return match[0]
        if not os.path.exists(path):
            log.warning("%s links to %s, which does not exist", page.file.src_uri, target)
        name = os.path.relpath(path, root)
        return f"`{name}`" if text.strip("`") == name else f"{text} (`{name}`)"

    return LINK.sub(replace, markdown)
