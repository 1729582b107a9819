"""The pages and their order. ``ensure`` is the first line of every page."""

from __future__ import annotations

import streamlit as st

DATA, SEEDS, ALIGN, RETRIEVAL = "pages/data.py", "pages/seeds.py", "pages/align.py", "pages/retrieval.py"


def pages() -> list:
    return [
        st.Page(DATA, title="Data", icon=":material/scatter_plot:", default=True),
        st.Page(SEEDS, title="Seeds", icon=":material/link:"),
        st.Page(ALIGN, title="Align", icon=":material/play_circle:"),
        st.Page(RETRIEVAL, title="Retrieval", icon=":material/manage_search:"),
    ]


def ensure() -> None:
    """Hand over to app.py when a page was asked for directly.

    With a ``pages/`` folder Streamlit serves the first deep link after a server start past app.py, until some
    session has called ``st.navigation``.
    """
    if not st.session_state.get("_routed"):
        st.navigation(pages())
        st.rerun()
