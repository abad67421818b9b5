//! Error replies to clients whose request was refused, or whose outcome is unknown.

use tribunal_core::control::{Limit, Refusal};
use tribunal_service::ServiceError;

/// Returns the error for a client whose request was refused.
#[must_use]
pub fn refused(refusal: Refusal) -> ServiceError {
    let (code, pointer) = match refusal {
        Refusal::LimitReached(Limit::Stores | Limit::StoresOfTenant) => ("too_many_stores", ""),
        Refusal::LimitReached(Limit::SkipsOfStore) => ("too_many_skips", ""),
        Refusal::LimitReached(Limit::PluginVersions) => ("too_many_plugins", ""),
        Refusal::LimitReached(Limit::Keys | Limit::KeysOfTenant | Limit::Tenants) => ("too_many_keys", ""),
        Refusal::LimitReached(Limit::Nodes) => ("too_many_nodes", ""),
        Refusal::ExistenceFixed => ("existence_fixed", "/existence"),
        Refusal::PluginNameTaken => ("plugin_name_taken", "{name}"),
        Refusal::EnginesDiffer => ("engines_differ", ""),
        Refusal::GenerationUnknown => ("generation_unknown", ""),
        Refusal::PluginInUse => ("plugin_in_use", "{name}"),
        Refusal::LastMajority => ("last_majority", ""),
        Refusal::LastServing => ("last_serving", ""),
        Refusal::NodeNotMember => ("not_a_member", ""),
        Refusal::NodeNameLength => ("node_name_length", "/name"),
        Refusal::NodeNameTaken => ("node_name_taken", "/name"),
        Refusal::StoreUnknown => return ServiceError::NotFound { what: "store of this name".into() },
        Refusal::NodeUnknown => {
            return ServiceError::NotFound {
                what: "node with this number; `tribunal cluster status` (`GET /v1/cluster`) lists them".into(),
            };
        }
        Refusal::PluginNotReady
        | Refusal::KeyIdTaken
        | Refusal::OutOfNodes
        | Refusal::NodeNotAdmitted
        | Refusal::NodeClaimed
        | Refusal::NodeHasGroup
        | Refusal::ReleaseMalformed
        | Refusal::OutOfNumbers => return ServiceError::Unavailable { detail: refusal.to_string() },
    };
    ServiceError::ClientMistake { code, pointer: pointer.into(), detail: refusal.to_string() }
}

/// Returns the error of a node that is about to stop.
#[must_use]
pub fn stopping() -> ServiceError {
    ServiceError::Unavailable { detail: "the node is stopping; nothing was taken in".into() }
}

/// Returns the error for a change of the configuration, or an import, that may or may not have been made.
#[must_use]
pub fn change_unknown() -> ServiceError {
    ServiceError::OutcomeUnknown {
        detail: "the change was accepted, but did not become durable in time: it is not known whether it will be made. Check, \
                 and repeat it if it was not"
            .into(),
    }
}

/// Returns the error for a transaction that may or may not have been decided.
#[must_use]
pub fn outcome_unknown() -> ServiceError {
    ServiceError::OutcomeUnknown {
        detail: "the transaction was accepted, but its verdict did not become durable in time; get its status by id"
            .into(),
    }
}
