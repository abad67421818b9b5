"""The state of stores, with numbers as `int` and absent fields as `None`."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from .verdict import given, maybe_number, number
from .wire.models import StoreInfo as WireInfo
from .wire.types import Unset

if TYPE_CHECKING:
    import httpx

    from .wire.models import StorePush as WirePush


@dataclass(frozen=True, slots=True)
class StorePush:
    """The push to a store's storage."""

    state: str
    """`running`, `backing_off`, `stopped`, `detached`, `damaged` or `log_only`; newer services may add some."""
    lag_ms: int
    """Age of the oldest record that is not acknowledged, milliseconds; 0 if there is none."""
    durability: str | None
    """The storage's guarantee for acknowledged records: `always`, `everysec`, `none`, `unknown` and so on."""
    node: int | None
    """The node of a cluster that pushes, if one does."""
    last_error: str | None
    """The storage's last error. For a detached store: why it was detached, and how to attach it."""
    stopped_at_lsn: int | None
    """The record that the storage cannot apply, if the push stopped at one."""


@dataclass(frozen=True, slots=True)
class StoreInfo:
    """A store and its progress."""

    store: str
    """Its name."""
    existence: str
    """Who tracks which rows exist: Tribunal (`tracked`) or the engine (`declared`).

    A newer service may have further values, which this client passes on.
    """
    multi_version: bool
    """Whether the engine reads it at the snapshot of Begin."""
    transactional: bool
    """Whether the storage's watermark moves in the same transaction as the rows."""
    adaptor: str | None
    """Its LogAdaptor; a log-only store has none."""
    adaptor_config: dict[str, Any] | None
    """The adaptor's configuration."""
    rows: int | None
    """Number of rows; `None` if the store is `declared`, because only its engine knows."""
    head_lsn: int
    """Last position of its log."""
    acked_lsn: int
    """Last position that the storage acknowledged."""
    committed: int
    """Last epoch that has been decided."""
    durable: int
    """Last epoch that is durable."""
    applied: int
    """Last epoch whose records in this store are all acknowledged."""
    push: StorePush
    """The push to its storage."""
    log: str | None
    """The log that all positions belong to; `None` if the service is of an earlier release."""


def parse_store(*, client: object, response: httpx.Response) -> StoreInfo:  # noqa: ARG001
    """Parse a response with the state of a store."""
    return _store_of(response.json())


def parse_stores(*, client: object, response: httpx.Response) -> list[StoreInfo]:  # noqa: ARG001
    """Parse a response with the state of several stores."""
    return [_store_of(info) for info in response.json()["stores"]]


def _store_of(document: dict[str, Any]) -> StoreInfo:
    # The generated reader refuses an unknown `existence`, because requests use the same type.
    info = WireInfo.from_dict({**document, "existence": "tracked"})
    config = info.adaptor_config
    return StoreInfo(
        store=info.store,
        existence=document["existence"],
        multi_version=info.multi_version,
        transactional=info.transactional,
        adaptor=given(info.adaptor),
        adaptor_config=None if isinstance(config, Unset) else config.to_dict(),
        rows=maybe_number(info.rows),
        head_lsn=number(info.head_lsn),
        acked_lsn=number(info.acked_lsn),
        committed=number(info.committed),
        durable=number(info.durable),
        applied=number(info.applied),
        push=_push_of(info.push),
        log=given(info.log),
    )


def _push_of(push: WirePush) -> StorePush:
    return StorePush(
        state=push.state,
        lag_ms=number(push.lag_ms),
        durability=given(push.durability),
        node=given(push.node),
        last_error=given(push.last_error),
        stopped_at_lsn=maybe_number(push.stopped_at_lsn),
    )
