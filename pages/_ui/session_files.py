"""Opening a session that somebody saved: on the Data page and on the Export page."""

from __future__ import annotations

import tempfile
from pathlib import Path

import streamlit as st

from pages._ui import state
from pages._ui.header import plain
from relcore import sessions, store
from relcore.errors import InputError


def panel(s: state.State) -> None:
    """A field for a session, what is in it, and the button that opens it."""
    given = st.file_uploader(
        "A session that Relcore saved", type="zip", key="session_upload", label_visibility="collapsed"
    )
    if given is None:
        st.caption("A zip file from the button **Session**, here or on another machine: runs with their data.")
        return
    folder = store.home() / "uploads"
    folder.mkdir(exist_ok=True)
    with tempfile.NamedTemporaryFile(dir=folder, suffix=".zip") as f:
        f.write(given.getbuffer())
        f.flush()
        try:
            manifest = sessions.look(f.name)
            st.caption(
                f"Saved {manifest.created[:10]} by Relcore {plain(manifest.relcore)}: "
                + ", ".join(plain(r.get("title", r.get("id", ""))) for r in manifest.runs)
                + f"; {manifest.size / 1e6:,.0f} MB unpacked."
            )
            if not st.button("Open it", type="primary", key="session_open"):
                return
            bar = st.progress(0.0, text="checking and unpacking")
            brought = sessions.open_session(f.name, lambda share: bar.progress(share))
        except (InputError, OSError) as e:  # OSError: the disk is full
            st.error(plain(str(e).replace(Path(f.name).name, given.name)))
            return
    told = list(brought.notes) or [f"Here now: {len(brought.runs)} run{'s' * (len(brought.runs) != 1)}."]
    if brought.runs:
        try:
            state.open_run(s, brought.runs[0])
        except InputError as e:  # its data did not travel with it
            told.append(str(e))
    s.notice = "; ".join(told)
    st.rerun()
