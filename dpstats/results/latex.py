"""Results as LaTeX, with every label escaped."""

from __future__ import annotations

from collections.abc import Sequence

_ESCAPED = {
    "\\": r"\textbackslash{}", "{": r"\{", "}": r"\}", "$": r"\$", "&": r"\&", "#": r"\#",
    "_": r"\_", "%": r"\%", "^": r"\textasciicircum{}", "~": r"\textasciitilde{}",
    "<": r"\textless{}", ">": r"\textgreater{}", "|": r"\textbar{}", '"': r"\textquotedbl{}",
    "[": "{[}", "]": "{]}", "*": "{*}",  # after the end of a row they would be its options
}  # fmt: skip


def escaped(text: str) -> str:
    r"""Text that LaTeX prints as it is.

    Examples
    --------
    >>> print(escaped("age >= 65 & a_b"), escaped("[0, 18)"))
    age \textgreater{}= 65 \& a\_b {[}0, 18)
    """
    return "".join(_ESCAPED.get(character, character) for character in text)


def as_latex(
    title: str,
    before: Sequence[str],
    header: Sequence[str],
    rows: Sequence[Sequence[str]],
    after: Sequence[str],
) -> str:
    """A floating table with the title as its caption, and lines above and below the cells.

    Needs the package booktabs; labels that LaTeX gives a meaning to are escaped.
    """
    lines = [r"\begin{table}", r"\centering", rf"\caption{{{escaped(title)}}}"]
    lines += [f"{escaped(line)}\\par" for line in before if line]
    if header:
        body = [" & ".join(map(escaped, row)) + r" \\" for row in (header, *rows)]
        lines += [
            rf"\begin{{tabular}}{{l{'r' * (len(header) - 1)}}}",
            r"\toprule",
            body[0],
            r"\midrule",
            *body[1:],
            r"\bottomrule",
            r"\end{tabular}",
        ]
    lines += [rf"\par{{\footnotesize {escaped(line)}}}" for line in after if line]
    return "\n".join([*lines, r"\end{table}"])
