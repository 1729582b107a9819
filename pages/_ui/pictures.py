"""Thumbnails: which of a space's media are pictures, and how they are shown without fetching anything.

Media come from a stranger's file. Only a ``data:image/...;base64,`` of a format that holds no program is drawn; a path
or an address is a text, and never opened or asked for.
"""

from __future__ import annotations

import re
from collections.abc import Iterable

import streamlit as st

from pages._ui.header import plain
from relcore.space import Space

_PICTURE = re.compile(r"data:image/(png|jpeg|gif|webp|bmp);base64,[A-Za-z0-9+/=]+")


def is_picture(media: str) -> bool:
    return media.startswith("data:image/") and _PICTURE.fullmatch(media) is not None


def columns(media: Iterable[str], width: int = 60) -> tuple[dict[str, list], dict]:
    """The media of some rows as columns of a table, and how ``st.dataframe`` draws them.

    Pictures and texts are apart, since a column of pictures would fetch whatever looks like an address.
    """
    values = list(media)
    pictures = [m if is_picture(m) else None for m in values]
    texts = ["" if p else m for m, p in zip(values, pictures, strict=True)]
    table, config = {}, {}
    if any(pictures):
        table["picture"] = pictures
        config["picture"] = st.column_config.ImageColumn(width=width)
    if any(texts):
        table["medium" if any(pictures) else "thumbnail"] = texts
        config["medium" if any(pictures) else "thumbnail"] = st.column_config.TextColumn(width=width)
    return table, config


def show(space: Space, row: int, width: int = 96) -> None:
    """The picture of one row, if it has one."""
    if space.media is not None and is_picture(space.media[row]):
        st.image(space.media[row], width=width, alt=f"Picture of {space.names[row]}")


def title(space: Space, row: int) -> str:
    """Name, label and, if it is a text, thumbnail of a row, as markdown."""
    medium = space.media[row] if space.media is not None else ""
    before = f"{plain(medium)} " if medium and not is_picture(medium) else ""
    label = f" · {plain(space.labels[row] or '(none)')}" if space.labels is not None else ""
    return f"{before}{plain(space.names[row])}{label}"
