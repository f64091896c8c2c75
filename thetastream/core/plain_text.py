"""Text for a terminal: what comes from records must not control it.

A value of a stream may have the sequences by which programs move the cursor, change the title of a window or
fill the clipboard. It may also turn the direction of the text around it, so that a line shows something else
than it says.
"""

import re

_CONTROLS = re.compile("[\x00-\x08\x0b-\x1f\x7f-\x9f\u061c\u200e\u200f\u2028-\u202e\u2066-\u2069]")
_BREAKS = str.maketrans({"\t": r"\t", "\n": r"\n"})


def show_controls(text: str, *, is_line: bool = False) -> str:
    r"""Write characters that control a terminal as escapes.

    Parameters
    ----------
    text : str
    is_line : bool
        Whether tabs and ends of lines are escapes too.

    Examples
    --------
    >>> show_controls("a\x1b[2Jb\n"), show_controls("a\nb", is_line=True)
    ('a\\x1b[2Jb\n', 'a\\nb')
    """
    shown = _CONTROLS.sub(lambda found: repr(found[0])[1:-1], text)
    return shown.translate(_BREAKS) if is_line else shown
