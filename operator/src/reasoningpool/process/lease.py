"""Leadership by a Lease: one writer at a time, a quick hand-over on SIGTERM, no second writer after a freeze."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any, Final

from reasoningpool.adapters.errors import Conflict, Forbidden, KubeError, NotFound
from reasoningpool.adapters.kube import Kube
from reasoningpool.adapters.server_clock import boot_seconds
from reasoningpool.objects import Manifest, ObjectKey

log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True, kw_only=True)
class LeaseTiming:
    """Kubernetes' own controllers use the same three numbers."""

    duration: float = 15.0
    # A holder that could not renew for this long stops by itself, well before another one may take over.
    deadline: float = 10.0
    retry: float = 2.0


TIMING: Final = LeaseTiming()


class Lease:
    """A Lease we want to hold. `held` is judged by what has passed since our own renewal, never by anybody's clock."""

    def __init__(
        self,
        kube: Kube,
        *,
        namespace: str,
        name: str,
        identity: str,
        timing: LeaseTiming = TIMING,
        clock: Callable[[], float] = boot_seconds,
    ) -> None:
        self._kube = kube
        self._key = ObjectKey("coordination.k8s.io/v1", "Lease", namespace, name)
        self._me = identity
        self._timing = timing
        self._clock = clock
        self._renewed_at: float | None = None
        self._seen: dict[str, Any] | None = None
        self._seen_at = 0.0
        self._released = False
        self.holder = ""

    @property
    def held(self) -> bool:
        """Whether we may write: it is ours, and was renewed recently enough that nobody else can have it."""
        return self._renewed_at is not None and self._clock() - self._renewed_at < self._timing.deadline

    async def acquire(self) -> None:
        """Wait until the Lease is ours."""
        told: str | None = None
        while True:
            try:
                if await self.attempt():
                    log.info("leading: %s holds %s", self._me, self._key)
                    return
                if self.holder != told:
                    told = self.holder
                    log.info("standing by: %s holds %s", self.holder or "nobody", self._key)
            except Forbidden as error:
                log.error("%s; leader election needs get, create and update on leases", error.message)  # noqa: TRY400
            except KubeError as error:
                log.warning("the Lease could not be read or written: %s", error.message)
            await asyncio.sleep(self._timing.retry)

    async def keep(self) -> None:
        """Renew until the Lease is lost; returning means that we must stop writing at once."""
        while self.held:
            await asyncio.sleep(self._timing.retry)
            if self._released or not self.held:
                break
            try:
                async with asyncio.timeout(self._timing.deadline):
                    if not await self.attempt():
                        break
            except (KubeError, TimeoutError) as error:
                log.warning("the Lease was not renewed: %s", error)
        if self._released:
            return
        self._renewed_at = None
        log.error("leadership lost: %s is held by %s", self._key, self.holder or "nobody")

    async def attempt(self) -> bool:
        """One try to take or renew it; True when it is ours now."""
        started = self._clock()
        try:
            lease = await self._kube.get_lease(self._key)
        except NotFound:
            lease = None
        if lease is None:
            written = await self._create()
        else:
            written = await self._take(lease)
        if written:
            # The time before the request: nobody can count our lease from an earlier moment.
            self._renewed_at = started
            self.holder = self._me
        return written

    async def release(self) -> None:
        """Let go, so that a standby takes over within its retry period."""
        if self._renewed_at is None or self._released:
            return
        self._released, self._renewed_at = True, None
        try:
            lease = await self._kube.get_lease(self._key)
            if (lease.get("spec") or {}).get("holderIdentity") != self._me:
                return
            spec = {**lease["spec"], "holderIdentity": "", "leaseDurationSeconds": 1, "renewTime": _now()}
            await self._kube.put_lease({**lease, "spec": spec})
            log.info("leadership released")
        except KubeError as error:
            log.warning("the Lease was not released; the next leader waits until it expires: %s", error.message)

    async def _create(self) -> bool:
        meta = {"namespace": self._key.namespace, "name": self._key.name}
        lease: Manifest = {
            "apiVersion": self._key.api_version,
            "kind": self._key.kind,
            "metadata": meta,
            "spec": self._spec({}),
        }
        try:
            await self._kube.create_lease(lease)
        except Conflict:
            return False
        return True

    async def _take(self, lease: Manifest) -> bool:
        spec: dict[str, Any] = lease.get("spec") or {}
        if spec != self._seen:
            self._seen, self._seen_at = spec, self._clock()
        self.holder = str(spec.get("holderIdentity") or "")
        expired = self._clock() - self._seen_at >= float(spec.get("leaseDurationSeconds") or 0)
        if self.holder not in {"", self._me} and not expired:
            return False
        # Carries the resourceVersion that was read: a faster rival makes this a Conflict.
        try:
            await self._kube.put_lease({**lease, "spec": self._spec(spec)})
        except Conflict:
            return False
        return True

    def _spec(self, old: dict[str, Any]) -> dict[str, Any]:
        now, mine = _now(), old.get("holderIdentity") == self._me
        changes = int(old.get("leaseTransitions") or 0)
        return {
            "holderIdentity": self._me,
            "leaseDurationSeconds": int(self._timing.duration),
            "acquireTime": (old.get("acquireTime") if mine else None) or now,
            "renewTime": now,
            "leaseTransitions": changes if mine or not old else changes + 1,
        }


def _now() -> str:
    return datetime.now(UTC).strftime("%Y-%m-%dT%H:%M:%S.%fZ")
