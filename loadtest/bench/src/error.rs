//! What can stop a measurement, named by what the reader can do about it.

/// Why there are no figures.
#[derive(Debug, thiserror::Error)]
pub enum BenchError {
    /// The network or a file did not do as told.
    #[error("{doing}: {source}")]
    Io {
        /// What was being done.
        doing: String,
        /// Why it failed.
        source: std::io::Error,
    },
    /// The server's bytes are not what its API promises.
    #[error("unexpected reply: {0}")]
    Reply(&'static str),
    /// The server refused something that the measurement needs.
    #[error("the server refused {what}: {answer}")]
    Refused {
        /// What was asked.
        what: String,
        /// Its answer.
        answer: String,
    },
    /// The server did not do its part in time.
    #[error("{0}")]
    TooLate(String),
    /// The flags contradict each other.
    #[error("{0}")]
    Usage(String),
}

impl BenchError {
    /// Makes an error of an I/O error and what was being done.
    pub fn io(doing: impl Into<String>) -> impl FnOnce(std::io::Error) -> BenchError {
        let doing = doing.into();
        move |source| BenchError::Io { doing, source }
    }
}
