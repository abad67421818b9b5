//! Errors that can stop a measurement, named by their remedy.

/// Why there are no figures.
#[derive(Debug, thiserror::Error)]
pub enum BenchError {
    /// The network or a file failed.
    #[error("{doing}: {source}")]
    Io {
        /// The operation that failed.
        doing: String,
        /// Why it failed.
        source: std::io::Error,
    },
    /// The server's bytes violate its API.
    #[error("unexpected reply: {0}")]
    Reply(&'static str),
    /// The server refused a request that the measurement needs.
    #[error("the server refused {what}: {answer}")]
    Refused {
        /// The request.
        what: String,
        /// The response.
        answer: String,
    },
    /// The server did not complete an operation in time.
    #[error("{0}")]
    TooLate(String),
    /// The flags contradict each other.
    #[error("{0}")]
    Usage(String),
}

impl BenchError {
    /// Builds an error from an I/O error and the operation that failed.
    pub fn io(doing: impl Into<String>) -> impl FnOnce(std::io::Error) -> BenchError {
        let doing = doing.into();
        move |source| BenchError::Io { doing, source }
    }
}
