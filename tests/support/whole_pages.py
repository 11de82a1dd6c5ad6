"""Pages of reports: that they are whole by themselves."""

from __future__ import annotations

from html.parser import HTMLParser


class Tags(HTMLParser):
    """Which elements are open, and what they load."""

    void = frozenset({"meta", "path", "rect", "circle", "br"})

    def __init__(self) -> None:
        super().__init__()
        self.open: list[str] = []
        self.seen: set[str] = set()
        self.addresses: list[str] = []

    def handle_starttag(self, tag, attrs) -> None:
        self.seen.add(tag)
        self.addresses += [v for k, v in attrs if k in {"src", "href"} and v]
        if tag not in self.void:
            self.open.append(tag)

    def handle_endtag(self, tag) -> None:
        if tag not in self.void:
            assert self.open.pop() == tag


def whole(html: str) -> Tags:
    tags = Tags()
    tags.feed(html)
    assert not tags.open
    assert all(each.startswith("data:text/csv") for each in tags.addresses)
    assert "script" not in tags.seen
    assert "url(" not in html
    return tags
