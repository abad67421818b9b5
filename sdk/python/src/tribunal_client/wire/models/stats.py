from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, TypeVar

from attrs import define as _attrs_define
from attrs import field as _attrs_field

if TYPE_CHECKING:
    from ..models.abort_count import AbortCount
    from ..models.consumer import Consumer
    from ..models.distribution import Distribution
    from ..models.plugin_slot import PluginSlot
    from ..models.store_info import StoreInfo
    from ..models.timing import Timing


T = TypeVar("T", bound="Stats")


@_attrs_define
class Stats:
    """Figures of the last seconds, and where stores and readers stand.

    Attributes:
        abort_share (float): Aborted among the decided.
        aborted_per_s (float): Transactions aborted a second.
        aborts (list[AbortCount]): Aborts by reason, in the window.
        commits (list[Timing]): Time from a commit request to its answer, microseconds: `durable` and `applied`, as it
            asked.
        committed_per_s (float): Goodput: transactions committed a second.
        consumers (list[Consumer]): Consumers, by name.
        epoch (str): Last complete epoch. Example: 8842.
        epoch_txns (Distribution): Values of one kind; percentiles are right within an eighth, all are 0 if there is no
            value.
        epochs_per_s (float): Epochs a second.
        phases (list[Timing]): Where a transaction's time goes, microseconds: `queue` (waiting in the batch), `sync`
            (the log), `resolve`, and
            `apply` (push and storage, of those that asked for `ack: applied`).
        plugins (list[PluginSlot]): Plugin slots: what fills them, its health and cost.
        replayed_per_s (float): Retries a second that were answered with the verdict that stood.
        stores (list[StoreInfo]): Stores, by name.
        uptime_ms (str): Since the node started, milliseconds. Example: 3600000.
        window_ms (str): Length of the window that rates and percentiles are of, milliseconds. Example: 10000.
    """

    abort_share: float
    aborted_per_s: float
    aborts: list[AbortCount]
    commits: list[Timing]
    committed_per_s: float
    consumers: list[Consumer]
    epoch: str
    epoch_txns: Distribution
    epochs_per_s: float
    phases: list[Timing]
    plugins: list[PluginSlot]
    replayed_per_s: float
    stores: list[StoreInfo]
    uptime_ms: str
    window_ms: str
    additional_properties: dict[str, Any] = _attrs_field(init=False, factory=dict)

    def to_dict(self) -> dict[str, Any]:
        abort_share = self.abort_share

        aborted_per_s = self.aborted_per_s

        aborts = []
        for aborts_item_data in self.aborts:
            aborts_item = aborts_item_data.to_dict()
            aborts.append(aborts_item)

        commits = []
        for commits_item_data in self.commits:
            commits_item = commits_item_data.to_dict()
            commits.append(commits_item)

        committed_per_s = self.committed_per_s

        consumers = []
        for consumers_item_data in self.consumers:
            consumers_item = consumers_item_data.to_dict()
            consumers.append(consumers_item)

        epoch = self.epoch

        epoch_txns = self.epoch_txns.to_dict()

        epochs_per_s = self.epochs_per_s

        phases = []
        for phases_item_data in self.phases:
            phases_item = phases_item_data.to_dict()
            phases.append(phases_item)

        plugins = []
        for plugins_item_data in self.plugins:
            plugins_item = plugins_item_data.to_dict()
            plugins.append(plugins_item)

        replayed_per_s = self.replayed_per_s

        stores = []
        for stores_item_data in self.stores:
            stores_item = stores_item_data.to_dict()
            stores.append(stores_item)

        uptime_ms = self.uptime_ms

        window_ms = self.window_ms

        field_dict: dict[str, Any] = {}
        field_dict.update(self.additional_properties)
        field_dict.update(
            {
                "abort_share": abort_share,
                "aborted_per_s": aborted_per_s,
                "aborts": aborts,
                "commits": commits,
                "committed_per_s": committed_per_s,
                "consumers": consumers,
                "epoch": epoch,
                "epoch_txns": epoch_txns,
                "epochs_per_s": epochs_per_s,
                "phases": phases,
                "plugins": plugins,
                "replayed_per_s": replayed_per_s,
                "stores": stores,
                "uptime_ms": uptime_ms,
                "window_ms": window_ms,
            }
        )

        return field_dict

    @classmethod
    def from_dict(cls: type[T], src_dict: Mapping[str, Any]) -> T:
        from ..models.abort_count import AbortCount  # noqa: PLC0415
        from ..models.consumer import Consumer  # noqa: PLC0415
        from ..models.distribution import Distribution  # noqa: PLC0415
        from ..models.plugin_slot import PluginSlot  # noqa: PLC0415
        from ..models.store_info import StoreInfo  # noqa: PLC0415
        from ..models.timing import Timing  # noqa: PLC0415

        d = dict(src_dict)
        abort_share = d.pop("abort_share")

        aborted_per_s = d.pop("aborted_per_s")

        aborts = []
        _aborts = d.pop("aborts")
        for aborts_item_data in _aborts:
            aborts_item = AbortCount.from_dict(aborts_item_data)

            aborts.append(aborts_item)

        commits = []
        _commits = d.pop("commits")
        for commits_item_data in _commits:
            commits_item = Timing.from_dict(commits_item_data)

            commits.append(commits_item)

        committed_per_s = d.pop("committed_per_s")

        consumers = []
        _consumers = d.pop("consumers")
        for consumers_item_data in _consumers:
            consumers_item = Consumer.from_dict(consumers_item_data)

            consumers.append(consumers_item)

        epoch = d.pop("epoch")

        epoch_txns = Distribution.from_dict(d.pop("epoch_txns"))

        epochs_per_s = d.pop("epochs_per_s")

        phases = []
        _phases = d.pop("phases")
        for phases_item_data in _phases:
            phases_item = Timing.from_dict(phases_item_data)

            phases.append(phases_item)

        plugins = []
        _plugins = d.pop("plugins")
        for plugins_item_data in _plugins:
            plugins_item = PluginSlot.from_dict(plugins_item_data)

            plugins.append(plugins_item)

        replayed_per_s = d.pop("replayed_per_s")

        stores = []
        _stores = d.pop("stores")
        for stores_item_data in _stores:
            stores_item = StoreInfo.from_dict(stores_item_data)

            stores.append(stores_item)

        uptime_ms = d.pop("uptime_ms")

        window_ms = d.pop("window_ms")

        stats = cls(
            abort_share=abort_share,
            aborted_per_s=aborted_per_s,
            aborts=aborts,
            commits=commits,
            committed_per_s=committed_per_s,
            consumers=consumers,
            epoch=epoch,
            epoch_txns=epoch_txns,
            epochs_per_s=epochs_per_s,
            phases=phases,
            plugins=plugins,
            replayed_per_s=replayed_per_s,
            stores=stores,
            uptime_ms=uptime_ms,
            window_ms=window_ms,
        )

        stats.additional_properties = d
        return stats

    @property
    def additional_keys(self) -> list[str]:
        return list(self.additional_properties.keys())

    def __getitem__(self, key: str) -> Any:
        return self.additional_properties[key]

    def __setitem__(self, key: str, value: Any) -> None:
        self.additional_properties[key] = value

    def __delitem__(self, key: str) -> None:
        del self.additional_properties[key]

    def __contains__(self, key: str) -> bool:
        return key in self.additional_properties
