"""Empty states: what is missing, and the one button that mends it."""

from __future__ import annotations

import streamlit as st

from pages._ui import router, runner, state
from relcore.runs import Run


def no_run(s: state.State, run: Run | None, what: str) -> None:
    """Shown where a finished run is wanted: none yet, still going, or one that kept nothing."""
    if run is not None and run.active:
        st.info(f"{what} Run {run.title} is {run.status}; its result appears here when it is done.")
        if st.button("Watch it", icon=":material/visibility:"):
            st.switch_page(router.ALIGN)
        return
    if run is not None:
        st.warning(f"Run {run.title} is {run.status} and kept no result. {run.record['message']}")
    else:
        st.info(f"{what} No run is open yet.")
    if runner.default_button(s, "run_from_here"):
        st.switch_page(router.ALIGN)
