"""Optional kinds come and go with their CRDs; the operator follows, and works without them.

The API's discovery says what is served (any account may read it), not a 404 of some request: a 404 may also be a
namespace that is gone. Discovery is read again every 20 s, and at once when the API server refuses a watch.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
from collections.abc import Callable
from functools import partial
from typing import Final, Protocol

from reasoningpool.adapters.errors import Forbidden, KubeError, NotInstalled
from reasoningpool.adapters.kube import Kube
from reasoningpool.objects import Availability, Kind
from reasoningpool.reconcile.lists import SELECTOR, Scopes, list_kind
from reasoningpool.reconcile.store import Store

log = logging.getLogger(__name__)

LOOK_SECONDS: Final = 20.0
# A refused watch is looked into at once, but a server that refuses every watch is not asked without pause.
_PAUSE_SECONDS: Final = 2.0


class Watches(Protocol):
    """Whoever keeps the watches of optional kinds."""

    async def start(self, kind: Kind, *, on_refused: Callable[[], None]) -> None:
        """Watch this kind from now on; call `on_refused` when the API server refuses (403, 404)."""

    async def stop(self, kind: Kind) -> None:
        """End its watch; does nothing if there is none."""


class OptionalKinds:
    """Keeps `store.availability`, the store's objects and the watches true to what the cluster serves.

    `on_change` is called when the availability of any kind has changed, since plans may depend on it.
    """

    def __init__(
        self, kube: Kube, store: Store, watches: Watches, scopes: Scopes, *, on_change: Callable[[], None]
    ) -> None:
        self._kube = kube
        self._store = store
        self._watches = watches
        self._scopes = tuple(scopes)
        self._on_change = on_change
        self._refused: set[Kind] = set()
        self._wake = asyncio.Event()
        # What was logged last of each kind, to log it once.
        self._logged: dict[Kind, str] = {}

    def forbidden(self) -> tuple[Kind, ...]:
        """Kinds that the cluster serves and the operator may not read."""
        found = self._store.availability.items()
        return tuple(kind for kind, availability in found if availability is Availability.FORBIDDEN)

    async def run(self, interval: float = LOOK_SECONDS) -> None:
        """Look until cancelled."""
        while True:
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(interval):
                    await self._wake.wait()
                await asyncio.sleep(_PAUSE_SECONDS)
            self._wake.clear()
            await self.look()

    async def look(self) -> None:
        """Follow what the cluster serves now. Never raises KubeError: a kind that cannot be judged stays as it was."""
        changed = False
        for kind in self._store.kinds.optional:
            try:
                changed = await self._look_for(kind) or changed
            except KubeError as error:
                self._log_once(
                    kind, logging.WARNING, f"could not find out whether the cluster serves {kind}: {error.message}"
                )
        if changed:
            self._on_change()

    def _watch_refused(self, kind: Kind) -> None:
        self._refused.add(kind)
        self._wake.set()

    async def _look_for(self, kind: Kind) -> bool:
        """Whether the availability of this kind has changed."""
        before, refused = self._store.availability[kind], kind in self._refused
        now = await self._find(kind, known=before is Availability.AVAILABLE and not refused)
        self._refused.discard(kind)
        if now is before and not refused:
            return False
        if refused or now is not Availability.AVAILABLE:
            await self._watches.stop(kind)
        self._store.set_availability(kind, now)
        if now is Availability.AVAILABLE:
            self._log_once(kind, logging.INFO, f"{kind} is served and watched")
            await self._watches.start(kind, on_refused=partial(self._watch_refused, kind))
        elif now is Availability.NOT_INSTALLED:
            self._log_once(kind, logging.INFO, f"{kind} is no longer served; continuing without it")
        return now is not before

    async def _find(self, kind: Kind, *, known: bool) -> Availability:
        """What is true of the kind; unless it is `known` to be readable, its objects are in the store then."""
        if kind.plural not in await self._kube.resources(kind.api_version):
            return Availability.NOT_INSTALLED
        if known:
            return Availability.AVAILABLE
        try:
            await list_kind(self._kube, self._store, kind, self._scopes)
            for scope in self._scopes:
                await self._kube.try_watch(kind, namespace=scope, label_selector=SELECTOR)
        except NotInstalled:  # gone since, or another API server does not know it yet
            return Availability.NOT_INSTALLED
        except Forbidden as error:
            hint = "grant get, list and watch to the operator's service account (operator/deploy/rbac.yaml)"
            self._log_once(kind, logging.WARNING, f"continuing without {kind}: {error.message}; {hint}")
            return Availability.FORBIDDEN
        return Availability.AVAILABLE

    def _log_once(self, kind: Kind, level: int, message: str) -> None:
        if self._logged.get(kind) != message:
            self._logged[kind] = message
            log.log(level, "%s", message)
