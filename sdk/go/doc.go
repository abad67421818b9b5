// Package tribunal is a client of Tribunal, concurrency control as a service: a [Transaction] collects its reads and
// writes, then asks for a verdict.
//
// An engine with a storage of its own reads there instead of calling [Transaction.Get], and records its reads with
// [Transaction.Observe] and [Transaction.ObserveRange].
//
// Several nodes of one cluster are named with commas between them, or as a list to [NewWithEndpoints]. One is in use at
// a time; after a failure the next one is, and gets what was lost with the same ids.
//
// A lost reply is resolved, not guessed: the client requests the verdict by the transaction's id and sets a fence, so
// the transaction has either committed or never will. Only [Client.Run] runs the caller's work more than once.
//
// Keys are strings of any bytes. Package wire has the wire types, generated from the API's description.
package tribunal
