//! Signatures of the functions that plugins export. Types are compared once, when a plugin is loaded: comparing them at
//! each call would take longer than a small call itself.

use std::fmt;
use std::marker::PhantomData;

use wasmtime::component::{ComponentExportIndex, ComponentNamedList, Lift, Lower};

use crate::abi;

/// A function of the plugin interfaces, in terms of the host's types.
pub(crate) trait Signature {
    /// Parameters.
    type Params<'a>: ComponentNamedList + Lower;
    /// Results.
    type Answer: ComponentNamedList + Lift + 'static;
    /// Name of the function.
    const NAME: &'static str;
}

/// A function of one component that has the signature `S`.
///
/// Only created by [`crate::call::Call::export`], which has compared the types.
pub(crate) struct Export<S> {
    pub(crate) index: ComponentExportIndex,
    signature: PhantomData<fn() -> S>,
}

impl<S> Export<S> {
    /// Creates the export of a function whose types have been compared.
    pub(crate) fn compared(index: ComponentExportIndex) -> Self {
        Export { index, signature: PhantomData }
    }
}

impl<S> Clone for Export<S> {
    fn clone(&self) -> Self {
        Export { index: self.index, signature: PhantomData }
    }
}

impl<S: Signature> fmt::Debug for Export<S> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(S::NAME)
    }
}

/// A plugin's result: a value, or the text of a fault.
type Or<T> = (Result<T, String>,);

/// `lifecycle.describe`
pub(crate) enum Describe {}

impl Signature for Describe {
    type Params<'a> = ();
    type Answer = (abi::Description,);
    const NAME: &'static str = "describe";
}

/// `lifecycle.init`
pub(crate) enum Init {}

impl Signature for Init {
    type Params<'a> = (&'a str,);
    type Answer = Or<()>;
    const NAME: &'static str = "init";
}

/// `rule.needs`
pub(crate) enum RuleNeeds {}

impl Signature for RuleNeeds {
    type Params<'a> = ();
    type Answer = (abi::RuleColumns,);
    const NAME: &'static str = "needs";
}

/// `rule.rank`
pub(crate) enum Rank {}

impl Signature for Rank {
    type Params<'a> = (abi::RuleTxns<'a>,);
    type Answer = Or<abi::Ranks>;
    const NAME: &'static str = "rank";
}

/// `validator.needs`
pub(crate) enum ValidatorNeeds {}

impl Signature for ValidatorNeeds {
    type Params<'a> = ();
    type Answer = (abi::Groups,);
    const NAME: &'static str = "needs";
}

/// `validator.validate`
pub(crate) enum Validate {}

impl Signature for Validate {
    type Params<'a> = (abi::Evidence<'a>,);
    type Answer = Or<abi::Validation>;
    const NAME: &'static str = "validate";
}

/// `adaptor.takes`
pub(crate) enum Takes {}

impl Signature for Takes {
    type Params<'a> = ();
    type Answer = (abi::Kinds,);
    const NAME: &'static str = "takes";
}

/// `adaptor.watermark`
pub(crate) enum AskWatermark {}

impl Signature for AskWatermark {
    type Params<'a> = ();
    type Answer = Or<abi::Request>;
    const NAME: &'static str = "watermark";
}

/// `adaptor.read-watermark`
pub(crate) enum ReadWatermark {}

impl Signature for ReadWatermark {
    type Params<'a> = (abi::Reply<'a>,);
    type Answer = Or<u64>;
    const NAME: &'static str = "read-watermark";
}

/// `adaptor.encode`
pub(crate) enum Encode {}

impl Signature for Encode {
    type Params<'a> = (abi::LogBatch<'a>,);
    type Answer = Or<Vec<abi::Request>>;
    const NAME: &'static str = "encode";
}

/// `adaptor.classify`
pub(crate) enum Classify {}

impl Signature for Classify {
    type Params<'a> = (abi::Reply<'a>,);
    type Answer = (abi::Ack,);
    const NAME: &'static str = "classify";
}

/// `record-ids.last` (optional)
pub(crate) enum LastRecord {}

impl Signature for LastRecord {
    type Params<'a> = ();
    type Answer = (Option<abi::RecordId>,);
    const NAME: &'static str = "last";
}

/// `traces.begin` (optional)
pub(crate) enum Begin {}

impl Signature for Begin {
    type Params<'a> = (abi::Traceparents<'a>,);
    type Answer = ();
    const NAME: &'static str = "begin";
}
