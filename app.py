"""The front door: page config, navigation, the header every page shares."""

import gc

import streamlit as st

from pages._ui import header, router

st.set_page_config(page_title="Relcore", page_icon=":material/hub:", layout="wide")
st.session_state["_routed"] = True
page = st.navigation(router.pages(), position="top")
header.show()
page.run()
gc.freeze()  # what is loaded by now stays: later collections need not walk it
