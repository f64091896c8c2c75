"""Reads calls of functions and casts."""

from thetastream.conditions.tokens import Phrase


def read_call(phrase: Phrase) -> tuple[str, list[Phrase]] | None:
    """Return the name of a function in upper case and its arguments; None if the phrase is no call.

    >>> from thetastream.conditions.tokens import parse
    >>> name, arguments = read_call(parse("date_diff(b.ts, (a.ts))"))
    >>> name, [argument.text for argument in arguments]
    ('DATE_DIFF', ['b.ts', 'a.ts'])
    >>> print(read_call(parse("f(a.x) + 1")))
    None
    """
    arguments = phrase.slice(1)
    if len(phrase.tokens) < 4 or not phrase.tokens[0].may_be_name or phrase.tokens[1].text != "(":
        return None
    inner = arguments.slice(1, -1)
    if arguments.bare().tokens == arguments.tokens or not inner:
        return None
    return phrase.tokens[0].keyword, [part.bare() for part in inner.split_at_commas()]


def read_cast(phrase: Phrase) -> tuple[Phrase, str] | None:
    """Return the value and the type of ``CAST(value AS type)`` or ``value::type``; None for another form.

    >>> from thetastream.conditions.tokens import parse
    >>> casts = [read_cast(parse(text)) for text in ("CAST(a.ts AS LONG)", "(a.ts)::date")]
    >>> [(value.text, type_) for value, type_ in casts]
    [('a.ts', 'LONG'), ('a.ts', 'date')]
    """
    casts = [n for n in phrase.top if phrase.tokens[n].kind == "DCOLON"]
    if casts:
        at = casts[-1]
        value, type_ = phrase.slice(0, at).bare(), phrase.slice(at + 1)
        return (value, type_.text) if value and len(type_.tokens) == 1 else None
    call = read_call(phrase)
    if call is None or call[0] not in ("CAST", "TRY_CAST") or len(call[1]) != 1:
        return None
    inner = call[1][0]
    words = [n for n in inner.top if inner.tokens[n].kind == "ALIAS"]
    return (inner.slice(0, words[0]).bare(), inner.slice(words[0] + 1).text) if words else None
