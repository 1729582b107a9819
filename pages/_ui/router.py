"""The pages and their order. ``ensure`` is the first line of every page."""

from __future__ import annotations

import streamlit as st

DATA, SEEDS, ALIGN, RETRIEVAL = "pages/data.py", "pages/seeds.py", "pages/align.py", "pages/retrieval.py"
HUBNESS, MISMATCH, STITCHING = "pages/hubness.py", "pages/mismatch.py", "pages/stitching.py"
COMPARE, EXPORT = "pages/compare.py", "pages/export.py"


def _home() -> None:
    st.switch_page(DATA, query_params=dict(st.query_params))


def pages() -> list:
    # The default page has no address but "/", so a link to /data would be refused if Data were it.
    return [
        st.Page(_home, title="Relcore", default=True, visibility="hidden"),
        st.Page(DATA, title="Data", icon=":material/scatter_plot:"),
        st.Page(SEEDS, title="Seeds", icon=":material/link:"),
        st.Page(ALIGN, title="Align", icon=":material/play_circle:"),
        st.Page(RETRIEVAL, title="Retrieval", icon=":material/manage_search:"),
        st.Page(HUBNESS, title="Hubness", icon=":material/hub:"),
        st.Page(MISMATCH, title="Mismatch", icon=":material/difference:"),
        st.Page(STITCHING, title="Stitching", icon=":material/join:"),
        st.Page(COMPARE, title="Compare", icon=":material/ssid_chart:"),
        st.Page(EXPORT, title="Export", icon=":material/download:"),
    ]


def through_the_front_door() -> None:
    """Said by app.py just before it runs a page."""
    st.session_state["_routed"] = True


def ensure() -> None:
    """Hand over to app.py when a page was asked for directly.

    With a ``pages/`` folder Streamlit serves the first deep link after a server start past app.py, until some
    session has called ``st.navigation``.
    """
    if not st.session_state.pop("_routed", False):
        st.navigation(pages())
        st.rerun()
