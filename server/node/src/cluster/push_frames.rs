//! Frames about the pushes to storages and webhooks.

use std::sync::Arc;

use tribunal_member::Frame;

use crate::cluster::outgoing::{OnPushFrame, PushStates};
use crate::readers::webhook_states;
use crate::readers::webhooks::Webhooks;
use crate::stores::push_states;
use crate::stores::pushes::Pushes;

/// Returns the handler of other nodes' push frames, and the source of this node's push states.
pub fn of_pushes(pushes: &Arc<Pushes>, webhooks: &Arc<Webhooks>) -> (OnPushFrame, PushStates) {
    let (taking, telling) = (Arc::clone(pushes), Arc::clone(pushes));
    let (of_webhooks, to_webhooks) = (Arc::clone(webhooks), Arc::clone(webhooks));
    let on_frame = Box::new(move |from, frame| match frame {
        Frame::PushStates(states) => match push_states::decode(&states) {
            Ok(told) => taking.told(from, told),
            Err(malformed) => tracing::warn!(%from, %malformed, "what a node tells of its pushes was dropped"),
        },
        Frame::Deliveries(states) => match webhook_states::decode(&states) {
            Ok(told) => of_webhooks.told(from, told),
            Err(malformed) => tracing::warn!(%from, %malformed, "what a node tells of its webhooks was dropped"),
        },
        Frame::ResumePush(store) => {
            of_webhooks.resume(store);
            taking.resume_aside(store);
        }
        _ => {}
    });
    let states = Box::new(move || {
        let (own, deliveries) = (telling.own_pushes(), to_webhooks.own_deliveries());
        let pushes = (!own.is_empty()).then(|| Frame::PushStates(push_states::encode(&own)));
        let deliveries = (!deliveries.is_empty()).then(|| Frame::Deliveries(webhook_states::encode(&deliveries)));
        pushes.into_iter().chain(deliveries).collect()
    });
    (on_frame, states)
}
