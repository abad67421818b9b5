from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, TypeVar

from attrs import define as _attrs_define
from attrs import field as _attrs_field

from ..models.store_existence import StoreExistence, check_store_existence
from ..types import UNSET, Unset

if TYPE_CHECKING:
    from ..models.store_declaration_adaptor_config import StoreDeclarationAdaptorConfig


T = TypeVar("T", bound="StoreDeclaration")


@_attrs_define
class StoreDeclaration:
    """Declaration of a store.

    Attributes:
        adaptor (str | Unset): LogAdaptor that writes to the storage: `kv` for a store embedded in the service; absent
            for a log-only store, whose
            engine keeps the rows itself and reads the log. It is not taken away from a store by leaving it out: see
            `log_only`. Example: redis.
        adaptor_config (StoreDeclarationAdaptorConfig | Unset): The adaptor's configuration, such as `{"endpoint":
            "127.0.0.1:6379", "prefix": "kv:"}` for `redis`. No credentials.
        existence (StoreExistence | Unset): Who tracks which rows exist. `tracked`, the default: Tribunal keeps the
            newest version of every live row. `declared`: the
            engine; for rows not written recently its read sets are trusted, and `insert`, `update` and `delete` are not
            checked.
            `add` is refused.
        log_only (bool | Unset): The store has no adaptor. Required to take the adaptor away from a store that has one;
            a new store without an adaptor is
            log-only anyway.
        multi_version (bool | Unset): The engine itself reads this store at the snapshot of Begin (multi-version
            storage). At level `snapshot`, its reads are not
            validated, and one with a later `version` than the snapshot is refused. Not for an embedded store, which has
            only the newest
            version of each row. It is not taken away from a store by leaving it out: declare `false`.
        transactional (bool | Unset): Has no effect: every adaptor moves its watermark in the same transaction as the
            rows. Earlier releases required it for `add`.
    """

    adaptor: str | Unset = UNSET
    adaptor_config: StoreDeclarationAdaptorConfig | Unset = UNSET
    existence: StoreExistence | Unset = UNSET
    log_only: bool | Unset = UNSET
    multi_version: bool | Unset = UNSET
    transactional: bool | Unset = UNSET
    additional_properties: dict[str, Any] = _attrs_field(init=False, factory=dict)

    def to_dict(self) -> dict[str, Any]:
        adaptor = self.adaptor

        adaptor_config: dict[str, Any] | Unset = UNSET
        if not isinstance(self.adaptor_config, Unset):
            adaptor_config = self.adaptor_config.to_dict()

        existence: str | Unset = UNSET
        if not isinstance(self.existence, Unset):
            existence = self.existence

        log_only = self.log_only

        multi_version = self.multi_version

        transactional = self.transactional

        field_dict: dict[str, Any] = {}
        field_dict.update(self.additional_properties)
        field_dict.update({})
        if adaptor is not UNSET:
            field_dict["adaptor"] = adaptor
        if adaptor_config is not UNSET:
            field_dict["adaptor_config"] = adaptor_config
        if existence is not UNSET:
            field_dict["existence"] = existence
        if log_only is not UNSET:
            field_dict["log_only"] = log_only
        if multi_version is not UNSET:
            field_dict["multi_version"] = multi_version
        if transactional is not UNSET:
            field_dict["transactional"] = transactional

        return field_dict

    @classmethod
    def from_dict(cls: type[T], src_dict: Mapping[str, Any]) -> T:
        from ..models.store_declaration_adaptor_config import (
            StoreDeclarationAdaptorConfig,  # noqa: PLC0415
        )

        d = dict(src_dict)
        adaptor = d.pop("adaptor", UNSET)

        _adaptor_config = d.pop("adaptor_config", UNSET)
        adaptor_config: StoreDeclarationAdaptorConfig | Unset
        if isinstance(_adaptor_config, Unset):
            adaptor_config = UNSET
        else:
            adaptor_config = StoreDeclarationAdaptorConfig.from_dict(_adaptor_config)

        _existence = d.pop("existence", UNSET)
        existence: StoreExistence | Unset
        if isinstance(_existence, Unset):
            existence = UNSET
        else:
            existence = check_store_existence(_existence)

        log_only = d.pop("log_only", UNSET)

        multi_version = d.pop("multi_version", UNSET)

        transactional = d.pop("transactional", UNSET)

        store_declaration = cls(
            adaptor=adaptor,
            adaptor_config=adaptor_config,
            existence=existence,
            log_only=log_only,
            multi_version=multi_version,
            transactional=transactional,
        )

        store_declaration.additional_properties = d
        return store_declaration

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
