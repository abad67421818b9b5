from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, TypeVar

from attrs import define as _attrs_define
from attrs import field as _attrs_field

from ..models.store_existence import StoreExistence, check_store_existence
from ..types import UNSET, Unset

if TYPE_CHECKING:
    from ..models.store_info_adaptor_config import StoreInfoAdaptorConfig
    from ..models.store_push import StorePush


T = TypeVar("T", bound="StoreInfo")


@_attrs_define
class StoreInfo:
    """A store and its progress.

    Attributes:
        acked_lsn (str): Last position that the storage acknowledged. Example: 120.
        applied (str): Last epoch whose records in this store are all acknowledged. Example: 8841.
        committed (str): Last epoch that has been decided. Example: 8842.
        durable (str): Last epoch that is durable. Example: 8842.
        existence (StoreExistence): Who tracks which rows exist. `tracked`, the default: Tribunal keeps the newest
            version of every live row. `declared`: the
            engine; for rows not written recently its read sets are trusted, and `insert`, `update` and `delete` are not
            checked.
            `add` is refused.
        head_lsn (str): Last position of its log: every commit up to the epoch `committed` is there or before. Example:
            120.
        multi_version (bool): The engine itself reads this store at the snapshot of Begin (multi-version storage).
        push (StorePush): The push to a store's storage.
        store (str): Its name. Example: kv.
        transactional (bool): Always `true`: the adaptor moves its watermark in the same transaction as the rows.
        adaptor (str | Unset): Its LogAdaptor; absent for a log-only store. Example: kv.
        adaptor_config (StoreInfoAdaptorConfig | Unset): The adaptor's configuration.
        log (str | Unset): The log that all positions refer to. A salvage or a restored backup may replace it. Example:
            8f14e45fceea167a5a36dedd4bea2543.
        namespace (str | Unset): Its namespace. Only in responses for operators of the service, which list the stores of
            several namespaces. Example: shop.
        rows (str | Unset): Number of rows; absent if the store is `declared`, because only its engine knows. Example:
            1000.
        stored_bytes (str | Unset): Bytes that an embedded store takes on the disk of the node that answers; absent for
            other stores. Example: 65536.
    """

    acked_lsn: str
    applied: str
    committed: str
    durable: str
    existence: StoreExistence
    head_lsn: str
    multi_version: bool
    push: StorePush
    store: str
    transactional: bool
    adaptor: str | Unset = UNSET
    adaptor_config: StoreInfoAdaptorConfig | Unset = UNSET
    log: str | Unset = UNSET
    namespace: str | Unset = UNSET
    rows: str | Unset = UNSET
    stored_bytes: str | Unset = UNSET
    additional_properties: dict[str, Any] = _attrs_field(init=False, factory=dict)

    def to_dict(self) -> dict[str, Any]:
        acked_lsn = self.acked_lsn

        applied = self.applied

        committed = self.committed

        durable = self.durable

        existence: str = self.existence

        head_lsn = self.head_lsn

        multi_version = self.multi_version

        push = self.push.to_dict()

        store = self.store

        transactional = self.transactional

        adaptor = self.adaptor

        adaptor_config: dict[str, Any] | Unset = UNSET
        if not isinstance(self.adaptor_config, Unset):
            adaptor_config = self.adaptor_config.to_dict()

        log = self.log

        namespace = self.namespace

        rows = self.rows

        stored_bytes = self.stored_bytes

        field_dict: dict[str, Any] = {}
        field_dict.update(self.additional_properties)
        field_dict.update(
            {
                "acked_lsn": acked_lsn,
                "applied": applied,
                "committed": committed,
                "durable": durable,
                "existence": existence,
                "head_lsn": head_lsn,
                "multi_version": multi_version,
                "push": push,
                "store": store,
                "transactional": transactional,
            }
        )
        if adaptor is not UNSET:
            field_dict["adaptor"] = adaptor
        if adaptor_config is not UNSET:
            field_dict["adaptor_config"] = adaptor_config
        if log is not UNSET:
            field_dict["log"] = log
        if namespace is not UNSET:
            field_dict["namespace"] = namespace
        if rows is not UNSET:
            field_dict["rows"] = rows
        if stored_bytes is not UNSET:
            field_dict["stored_bytes"] = stored_bytes

        return field_dict

    @classmethod
    def from_dict(cls: type[T], src_dict: Mapping[str, Any]) -> T:
        from ..models.store_info_adaptor_config import StoreInfoAdaptorConfig  # noqa: PLC0415
        from ..models.store_push import StorePush  # noqa: PLC0415

        d = dict(src_dict)
        acked_lsn = d.pop("acked_lsn")

        applied = d.pop("applied")

        committed = d.pop("committed")

        durable = d.pop("durable")

        existence = check_store_existence(d.pop("existence"))

        head_lsn = d.pop("head_lsn")

        multi_version = d.pop("multi_version")

        push = StorePush.from_dict(d.pop("push"))

        store = d.pop("store")

        transactional = d.pop("transactional")

        adaptor = d.pop("adaptor", UNSET)

        _adaptor_config = d.pop("adaptor_config", UNSET)
        adaptor_config: StoreInfoAdaptorConfig | Unset
        if isinstance(_adaptor_config, Unset):
            adaptor_config = UNSET
        else:
            adaptor_config = StoreInfoAdaptorConfig.from_dict(_adaptor_config)

        log = d.pop("log", UNSET)

        namespace = d.pop("namespace", UNSET)

        rows = d.pop("rows", UNSET)

        stored_bytes = d.pop("stored_bytes", UNSET)

        store_info = cls(
            acked_lsn=acked_lsn,
            applied=applied,
            committed=committed,
            durable=durable,
            existence=existence,
            head_lsn=head_lsn,
            multi_version=multi_version,
            push=push,
            store=store,
            transactional=transactional,
            adaptor=adaptor,
            adaptor_config=adaptor_config,
            log=log,
            namespace=namespace,
            rows=rows,
            stored_bytes=stored_bytes,
        )

        store_info.additional_properties = d
        return store_info

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
