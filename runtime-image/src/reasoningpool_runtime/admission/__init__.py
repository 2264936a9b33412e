"""Admission by forecast: a request starts when the predicted peak of the KV pool's use leaves room for it.

`AdmissionController` is the whole interface; the other modules are its parts and know no clock and no event loop.
"""

from reasoningpool_runtime.admission.controller import AdmissionController, Ticket
from reasoningpool_runtime.admission.types import (
    AdmissionConfig,
    AdmissionRequest,
    Capacity,
    Outcome,
    Reason,
    Rejected,
    Snapshot,
)

__all__ = [
    "AdmissionConfig",
    "AdmissionController",
    "AdmissionRequest",
    "Capacity",
    "Outcome",
    "Reason",
    "Rejected",
    "Snapshot",
    "Ticket",
]
