from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, TypeVar, cast

from attrs import define as _attrs_define
from attrs import field as _attrs_field

from ..types import UNSET, Unset

if TYPE_CHECKING:
    from ..models.problem_error import ProblemError


T = TypeVar("T", bound="Problem")


@_attrs_define
class Problem:
    """Why there is no decision (RFC 9457, `application/problem+json`).

    Attributes:
        code (str): What is wrong, for programs. Example: unknown_field.
        detail (str): What is wrong and what to do, for people. Example: /writes/0/valeu: no such field.
        retryable (bool): Whether the same request may succeed later.
        status (int): HTTP status code. Example: 400.
        title (str): The status code's phrase. Example: Bad Request.
        type_ (str): Always `about:blank`; see `code`. Example: about:blank.
        applied (str | Unset): With `row_missing`: the snapshot that was read.
        column (int | Unset): Column of malformed JSON in that line, from 1. Example: 17.
        errors (list[ProblemError] | Unset): Every error that was found in the request.
        line (int | Unset): The line of the body that the problem concerns, from 1. In a stream with more lines than
            this can hold,
            `detail` names it instead. Example: 3.
        nodes (list[int] | Unset): With `log_truncated`, in a cluster: numbers of the other nodes that still have the
            records after the position, ascending.
            `GET /v1/cluster` of a node returns its number. Example: [2, 3].
        oldest (str | Unset): With `log_truncated`: the oldest position that is retained.
        retry_after_ms (int | Unset): When to retry, milliseconds from now.
        session (str | Unset): With `row_missing`: session token, with which later reads reflect that snapshot or a
            later one. Example: v1-8841.
        state_url (str | Unset): With `log_truncated` and `log_replaced`: the state from which a reader can start over.
            Absent if the log of a store without
            an adaptor is truncated: its rows were only in the log. Example: /v1/stores/kv/state.
    """

    code: str
    detail: str
    retryable: bool
    status: int
    title: str
    type_: str
    applied: str | Unset = UNSET
    column: int | Unset = UNSET
    errors: list[ProblemError] | Unset = UNSET
    line: int | Unset = UNSET
    nodes: list[int] | Unset = UNSET
    oldest: str | Unset = UNSET
    retry_after_ms: int | Unset = UNSET
    session: str | Unset = UNSET
    state_url: str | Unset = UNSET
    additional_properties: dict[str, Any] = _attrs_field(init=False, factory=dict)

    def to_dict(self) -> dict[str, Any]:
        code = self.code

        detail = self.detail

        retryable = self.retryable

        status = self.status

        title = self.title

        type_ = self.type_

        applied = self.applied

        column = self.column

        errors: list[dict[str, Any]] | Unset = UNSET
        if not isinstance(self.errors, Unset):
            errors = []
            for errors_item_data in self.errors:
                errors_item = errors_item_data.to_dict()
                errors.append(errors_item)

        line = self.line

        nodes: list[int] | Unset = UNSET
        if not isinstance(self.nodes, Unset):
            nodes = self.nodes

        oldest = self.oldest

        retry_after_ms = self.retry_after_ms

        session = self.session

        state_url = self.state_url

        field_dict: dict[str, Any] = {}
        field_dict.update(self.additional_properties)
        field_dict.update(
            {
                "code": code,
                "detail": detail,
                "retryable": retryable,
                "status": status,
                "title": title,
                "type": type_,
            }
        )
        if applied is not UNSET:
            field_dict["applied"] = applied
        if column is not UNSET:
            field_dict["column"] = column
        if errors is not UNSET:
            field_dict["errors"] = errors
        if line is not UNSET:
            field_dict["line"] = line
        if nodes is not UNSET:
            field_dict["nodes"] = nodes
        if oldest is not UNSET:
            field_dict["oldest"] = oldest
        if retry_after_ms is not UNSET:
            field_dict["retry_after_ms"] = retry_after_ms
        if session is not UNSET:
            field_dict["session"] = session
        if state_url is not UNSET:
            field_dict["state_url"] = state_url

        return field_dict

    @classmethod
    def from_dict(cls: type[T], src_dict: Mapping[str, Any]) -> T:
        from ..models.problem_error import ProblemError  # noqa: PLC0415

        d = dict(src_dict)
        code = d.pop("code")

        detail = d.pop("detail")

        retryable = d.pop("retryable")

        status = d.pop("status")

        title = d.pop("title")

        type_ = d.pop("type")

        applied = d.pop("applied", UNSET)

        column = d.pop("column", UNSET)

        _errors = d.pop("errors", UNSET)
        errors: list[ProblemError] | Unset = UNSET
        if _errors is not UNSET:
            errors = []
            for errors_item_data in _errors:
                errors_item = ProblemError.from_dict(errors_item_data)

                errors.append(errors_item)

        line = d.pop("line", UNSET)

        nodes = cast(list[int], d.pop("nodes", UNSET))

        oldest = d.pop("oldest", UNSET)

        retry_after_ms = d.pop("retry_after_ms", UNSET)

        session = d.pop("session", UNSET)

        state_url = d.pop("state_url", UNSET)

        problem = cls(
            code=code,
            detail=detail,
            retryable=retryable,
            status=status,
            title=title,
            type_=type_,
            applied=applied,
            column=column,
            errors=errors,
            line=line,
            nodes=nodes,
            oldest=oldest,
            retry_after_ms=retry_after_ms,
            session=session,
            state_url=state_url,
        )

        problem.additional_properties = d
        return problem

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
