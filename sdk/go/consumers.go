package tribunal

import (
	"context"
	"errors"
	"fmt"
	"net/http"

	"tribunal.internal/client/wire"
)

// ConsumerInfo is a consumer of logs whose offsets the service stores.
type ConsumerInfo = wire.ConsumerInfo

// Offset is a consumer's position in a store's log.
type Offset struct {
	// LSN is the position of the last record that the consumer has processed: After of [LogOptions].
	LSN LSN
	// Log is the log that the position belongs to: Log of [LogOptions].
	Log string
}

// Consumers returns all consumers of the namespace's logs, with their offsets and lag.
func (c *Client) Consumers(ctx context.Context) ([]ConsumerInfo, error) {
	list, err := settled(ask[wire.ConsumerList](ctx, c, 0, func(ctx context.Context, at *wire.Client) (*response, error) {
		return at.ListConsumers(ctx)
	}))
	if err != nil {
		return nil, err
	}
	return list.Consumers, nil
}

// Offset returns a consumer's offset in a store's log; nil if it has none there.
func (c *Client) Offset(ctx context.Context, consumer, store string) (*Offset, error) {
	if err := errors.Join(checkText("name of a consumer", consumer), checkText("name of a store", store)); err != nil {
		return nil, err
	}
	consumers, err := c.Consumers(ctx)
	if err != nil {
		return nil, err
	}
	for _, known := range consumers {
		for _, at := range known.Offsets {
			if known.Name == consumer && at.Store == store {
				read := reader{}
				return &Offset{LSN: LSN(read.number(&at.Lsn)), Log: at.Log}, read.err
			}
		}
	}
	return nil, nil
}

// SetOffset sets a consumer's offset: it has processed every record up to and including offset.LSN. offset.Log may be
// empty. The offset is durable on return. It returns a *ClientMistake if the position is past the end of the log, or
// the log is not the service's (log_replaced). After an *Unavailable it is unknown whether the offset was set, because
// no other endpoint gets what one may still take: set it again.
func (c *Client) SetOffset(ctx context.Context, consumer, store string, offset Offset) (*ConsumerInfo, error) {
	names := errors.Join(checkName("name of a consumer", consumer), checkText("name of a store", store), checkText("log", offset.Log))
	if names != nil {
		return nil, names
	}
	body := wire.OffsetRequest{Store: store, Lsn: fmt.Sprint(uint64(offset.LSN))}
	if offset.Log != "" {
		body.Log = &offset.Log
	}
	calls := c.failover(0)
	calls.ifNotTaken = true
	answer := askOn(ctx, c, calls, documentOf[ConsumerInfo], func(ctx context.Context, at *wire.Client) (*response, error) {
		return at.PutConsumer(ctx, consumer, body)
	})
	if answer.err != nil && answer.ended == nil && !answer.neverSent {
		answer.err = fmt.Errorf("%w; the offset may have been set", answer.err)
	}
	return settled(answer)
}

// ForgetConsumer removes a consumer, so that the log is no longer retained for it. It returns a *ClientMistake with the
// code unknown_consumer if there is none; with several endpoints also if a first reply was lost.
func (c *Client) ForgetConsumer(ctx context.Context, consumer string) error {
	if err := checkName("name of a consumer", consumer); err != nil {
		return err
	}
	none := func([]byte) (*struct{}, error) { return &struct{}{}, nil }
	calls := c.failover(0)
	calls.ifNotTaken = true
	_, err := settled(askOn(ctx, c, calls, none, func(ctx context.Context, at *wire.Client) (*http.Response, error) {
		return at.DeleteConsumer(ctx, consumer, nil)
	}))
	return err
}
