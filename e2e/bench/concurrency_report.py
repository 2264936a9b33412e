"""Tables and the plot."""


def report(rows, predictions):
    """Later."""
