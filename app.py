"""The front door: page config, navigation, the header every page shares."""

import streamlit as st

from pages._ui import header, router

st.set_page_config(page_title="Relcore", page_icon=":material/hub:", layout="wide")
st.html(header.STYLE)
page = st.navigation(router.pages(), position="top")
if page.url_path:  # the hidden default page only leads on to Data
    header.show()
router.through_the_front_door()
page.run()
header.settle()
