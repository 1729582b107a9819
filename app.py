"""The front door: page config, navigation, the header every page shares."""

import streamlit as st

from pages._ui import header, router

st.set_page_config(page_title="Relcore", page_icon=":material/hub:", layout="wide")
st.session_state["_routed"] = True
st.html(header.STYLE)
page = st.navigation(router.pages(), position="top")
header.show()
page.run()
header.settle()
