//! A configuration change that a node proposes for itself, repeatedly until it sees the effect.
//!
//! Without a majority, a proposal waits until there is one. Periodic proposals would pile up meanwhile, so a change is
//! proposed again only after the previous proposal was applied or given up.

use tokio::sync::oneshot::{self, error::TryRecvError};
use tribunal_replica::ControlReply;
use tribunal_types::ControlChange;

use crate::commit::message::Message;

/// A proposed change.
pub struct ChangeUnderWay {
    reply: oneshot::Receiver<ControlReply>,
}

impl ChangeUnderWay {
    /// Returns the message that proposes a change, and a handle to its result.
    #[must_use]
    pub fn propose(change: ControlChange) -> (Message, ChangeUnderWay) {
        let (answer, reply) = oneshot::channel();
        (Message::Control(change, answer), ChangeUnderWay { reply })
    }

    /// Returns whether the change is neither applied nor given up.
    pub fn is_under_way(&mut self) -> bool {
        matches!(self.reply.try_recv(), Err(TryRecvError::Empty))
    }
}

#[cfg(test)]
mod tests {
    use tribunal_core::control::Effect;
    use tribunal_types::ControlIndex;

    use super::*;

    #[test]
    fn a_change_is_under_way_until_it_is_applied_or_given_up() {
        let change = || ControlChange::RevokeKey { id: "k".into() };
        let (message, mut under_way) = ChangeUnderWay::propose(change());
        assert!(under_way.is_under_way());
        let Message::Control(_, answer) = message else { unreachable!("it is a change of configuration") };
        answer.send(ControlReply { index: ControlIndex(1), applied: Ok(Effect::Repeated) }).unwrap();
        assert!(!under_way.is_under_way());
        assert!(!under_way.is_under_way(), "nor later");

        let (message, mut under_way) = ChangeUnderWay::propose(change());
        drop(message);
        assert!(!under_way.is_under_way());
    }
}
