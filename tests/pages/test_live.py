"""The Align page's view of a run: its phases."""

import pandas as pd

from pages._ui import live


def test_each_phase_has_the_curves_it_reports_and_like_phases_are_one():
    history = pd.DataFrame(
        [
            {"iteration": 1, "phase": "select", "held-out rank": 9.0, "mrr x to y": 0.1},
            {"iteration": 2, "phase": "select", "held-out rank": 8.0},
            {"iteration": 3, "phase": "look", "mrr x to y": 0.2},
            {"iteration": 4, "phase": "climb", "score": 0.5},
            {"iteration": 5, "phase": "climb again", "score": 0.6, "mrr x to y": 0.3},
        ]
    )
    phases = live.phases_of(history)
    assert list(phases) == ["select", "climb"]
    assert phases["select"] == {"held-out rank": ([1, 2], [9.0, 8.0]), "mrr x to y": ([1], [0.1])}
    assert phases["climb"]["score"] == ([4, 5], [0.5, 0.6])
