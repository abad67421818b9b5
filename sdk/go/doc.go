// Package tribunal is a client of Tribunal, concurrency control as a service: a [Transaction] collects what it read and
// what it wants to write, then asks for a verdict.
//
// An engine with a storage of its own reads there instead of calling [Transaction.Get], and says what it saw with
// [Transaction.Observe] and [Transaction.ObserveRange].
//
// A lost reply is never guessed: the transaction's id is asked for with a fence, so that it either had committed or
// never will. Never does this package run the caller's work twice outside [Client.Run].
//
// Keys are strings of any bytes. Package wire has everything that is on the wire, generated from the API's description.
package tribunal
