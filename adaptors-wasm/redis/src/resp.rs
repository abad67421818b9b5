//! Builds one RESP command in flat columns.

use std::io::Write as _;

use tribunal_plugin_sdk::Fault;
use tribunal_plugin_sdk::adaptor::RespPipeline;

/// A command being built.
#[derive(Debug)]
pub(crate) struct Pipeline {
    args: Vec<u8>,
    ends: Vec<usize>,
}

impl Pipeline {
    pub(crate) fn with_capacity(bytes: usize) -> Self {
        Pipeline { args: Vec::with_capacity(bytes), ends: Vec::new() }
    }

    pub(crate) fn argument(&mut self, argument: &[u8]) {
        self.joined(&[argument]);
    }

    /// Adds an argument made of several pieces.
    pub(crate) fn joined(&mut self, pieces: &[&[u8]]) {
        for piece in pieces {
            self.args.extend_from_slice(piece);
        }
        self.ends.push(self.args.len());
    }

    pub(crate) fn number(&mut self, number: u64) {
        write!(self.args, "{number}").expect("memory takes what is written to it");
        self.ends.push(self.args.len());
    }

    pub(crate) fn finish(self) -> Result<RespPipeline, Fault> {
        let end = |end: usize| u32::try_from(end).map_err(|_| "a request of 4 GiB".to_owned());
        let arg_ends = self.ends.iter().map(|&at| end(at)).collect::<Result<Vec<_>, _>>()?;
        let command_ends = vec![end(arg_ends.len())?];
        Ok(RespPipeline { args: self.args, arg_ends, command_ends })
    }
}
