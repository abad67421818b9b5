// Package tribunal is a client of Tribunal, concurrency control as a service: a [Transaction] collects its reads and
// writes, then requests a verdict.
//
// An engine with its own storage reads there instead of calling [Transaction.Get], and records its reads with
// [Transaction.Observe] and [Transaction.ObserveRange].
//
// Pass several nodes of one cluster separated by commas, or as a list to [NewWithEndpoints]. One is in use at a time;
// after a failure the client switches to the next one, and resends lost requests with the same ids.
//
// A lost reply is resolved, not guessed: the client queries the verdict by the transaction's id and sets a fence, so
// the transaction has either committed or never will. Only [Client.Run] runs the caller's work more than once.
//
// Keys are strings of any bytes. Package wire has the wire types, generated from the API's description.
package tribunal
