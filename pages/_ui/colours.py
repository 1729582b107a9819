from relcore.colours import *  # noqa: F403  moved; taken away once every page imports it from there
