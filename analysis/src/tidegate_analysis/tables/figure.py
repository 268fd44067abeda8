"""Fig. 6 of the study: the refined model of a group with the coefficients of our samples."""

import pandas as pd

from tidegate_analysis import estimate, model


def figure_6(group: str, thrashed: pd.DataFrame) -> str:
    """Return the path diagram of a group's refined model, estimated, as SVG.

    - group: ``read`` or ``update``.
    - thrashed: Its samples that thrashed, as in the study.

    Raises `SampleError`: there are too few of them, or a variable is constant in them.
    """
    refined = model.study(f"refined, {group}")
    return estimate.fit(refined, thrashed).diagram(
        title=f"Fig. 6, {group} group: n = {len(thrashed)}"
    )
