//! What a client is told whose change of configuration was refused when it was applied.

use tribunal_core::control::Refusal;
use tribunal_service::ServiceError;

/// Describes a refusal to the client whose request was refused.
#[must_use]
pub fn refused(refusal: Refusal) -> ServiceError {
    let (code, pointer) = match refusal {
        Refusal::TooManyStores | Refusal::TooManyStoresOfTenant => ("too_many_stores", ""),
        Refusal::ExistenceFixed => ("existence_fixed", "/existence"),
        Refusal::TooManySkips => ("too_many_skips", ""),
        Refusal::TooManyKeys | Refusal::TooManyKeysOfTenant | Refusal::TooManyTenants => ("too_many_keys", ""),
        Refusal::KeyIdTaken
        | Refusal::TooManyNodes
        | Refusal::NodeNotAdmitted
        | Refusal::NodeHasGroup
        | Refusal::OutOfNumbers => return ServiceError::Unavailable { detail: refusal.to_string() },
    };
    ServiceError::ClientMistake { code, pointer: pointer.into(), detail: refusal.to_string() }
}
