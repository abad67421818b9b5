//! A value exactly as it is stored.

use std::fmt;

use serde::de::DeserializeOwned;
use serde::{Serialize, Serializer};
use serde_json::value::RawValue;

use crate::Error;

/// The JSON of a value as it was posted, including digits, order and repetition of members, and whitespace. A binary
/// value has the form `{"$b64": "..."}`. Two values are equal if their text is.
#[derive(Clone, Debug)]
pub struct StoredValue(Box<RawValue>);

impl StoredValue {
    pub(crate) fn new(json: Box<RawValue>) -> Self {
        StoredValue(json)
    }

    /// Returns the text.
    #[must_use]
    pub fn get(&self) -> &str {
        self.0.get()
    }

    /// Parses the value.
    ///
    /// # Errors
    /// If the value is of another type.
    pub fn parse<T: DeserializeOwned>(&self) -> Result<T, Error> {
        serde_json::from_str(self.get())
            .map_err(|error| Error::misuse(format!("the value is of another type: {error}")))
    }
}

impl PartialEq for StoredValue {
    fn eq(&self, other: &Self) -> bool {
        self.get() == other.get()
    }
}

impl Eq for StoredValue {}

impl fmt::Display for StoredValue {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.get())
    }
}

/// Serialises as its own text within JSON.
impl Serialize for StoredValue {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        self.0.serialize(serializer)
    }
}
