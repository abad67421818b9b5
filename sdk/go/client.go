package tribunal

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/url"
	"slices"
	"strconv"
	"time"

	"github.com/google/uuid"

	"tribunal.internal/client/wire"
)

// answerBytesMax bounds an answer.
const answerBytesMax = 256 << 20

// Options says how a client behaves. The zero value is usable.
type Options struct {
	// APIKey is an API key or token, sent as a bearer token if it is not empty.
	APIKey string
	// ClientName is for rules that are fair between clients.
	ClientName string
	// Timeout bounds one answer, beyond what a request itself asks to wait; 0 means 30 s.
	Timeout time.Duration
	// ResolveTimeout bounds how long a lost reply is asked for before it becomes *OutcomeUnknown; 0 means 30 s.
	ResolveTimeout time.Duration
	// Retry bounds Run and log readers.
	Retry RetryPolicy
	// HTTPClient is used instead of one that keeps up to 256 idle connections.
	HTTPClient *http.Client
}

// Client is a client of one service. It is safe for concurrent use.
type Client struct {
	wire    *wire.Client
	options Options
}

// New builds a client for http://host:port. It connects when it is used.
func New(server string, options Options) (*Client, error) {
	if parsed, err := url.Parse(server); err != nil || parsed.Host == "" || parsed.Scheme != "http" && parsed.Scheme != "https" {
		return nil, misuse("%q is not of the form http://host:port", server)
	}
	if options.Timeout == 0 {
		options.Timeout = 30 * time.Second
	}
	if options.ResolveTimeout == 0 {
		options.ResolveTimeout = 30 * time.Second
	}
	if options.HTTPClient == nil {
		transport := http.DefaultTransport.(*http.Transport).Clone()
		transport.MaxIdleConns, transport.MaxIdleConnsPerHost = 256, 256
		options.HTTPClient = &http.Client{Transport: transport}
	}
	options.Retry = options.Retry.withDefaults()
	editors := []wire.ClientOption{wire.WithHTTPClient(options.HTTPClient)}
	if options.APIKey != "" {
		editors = append(editors, wire.WithRequestEditorFn(func(_ context.Context, request *http.Request) error {
			request.Header.Set("Authorization", "Bearer "+options.APIKey)
			return nil
		}))
	}
	client, err := wire.NewClient(server, editors...)
	if err != nil {
		return nil, misuse("%q cannot be used: %v", server, err)
	}
	return &Client{client, options}, nil
}

// BeginOptions says how a transaction begins. The zero value is a serializable transaction on all stores.
type BeginOptions struct {
	// Stores that it will use; all of the namespace if empty.
	Stores []string
	// Isolation level; Serializable if empty.
	Isolation Isolation
	// Session of an earlier commit whose writes must be visible.
	Session string
	// Wait is how long to wait for that.
	Wait time.Duration
}

// Begin begins a transaction at the service, which gives the snapshots.
func (c *Client) Begin(ctx context.Context, options BeginOptions) (*Transaction, error) {
	txn := newTransaction(c, "", options.Isolation)
	body := wire.BeginRequest{Isolation: &txn.isolation}
	if len(options.Stores) > 0 {
		body.Stores = &options.Stores
	}
	if options.Session != "" {
		body.Session = &options.Session
	}
	if options.Wait > 0 {
		wait := milliseconds(options.Wait)
		body.WaitMs = &wait
	}
	begun, err := settled(ask[wire.BeginResponse](ctx, c, options.Wait, func(ctx context.Context) (*response, error) {
		return c.wire.Begin(ctx, body)
	}))
	if err != nil {
		return nil, err
	}
	txn.id, txn.epoch, txn.snapshots = begun.TxnID, &begun.Epoch, begun.Snapshots
	return txn, nil
}

// BeginLocal begins a transaction without asking: under an id minted here and without snapshots. Such a transaction may
// use tracked stores only, no ranges, and read nothing at level Snapshot.
func (c *Client) BeginLocal(isolation Isolation) *Transaction {
	return newTransaction(c, uuid.Must(uuid.NewV7()).String(), isolation)
}

// Run runs work in a transaction and commits it; on a retryable abort again, on fresh reads, with growing waits. The
// work may run several times, and must have no other effect than on its transaction and on what it sets for its caller.
// It returns what work returns, and *TransactionAborted for a final abort or the last attempt's. An existing or missing
// row is final for work that read nothing: it would write the same again.
func (c *Client) Run(ctx context.Context, options BeginOptions, work func(context.Context, *Transaction) error) (*Committed, error) {
	failed := 0
	pause := func(asked time.Duration, err error) error {
		failed++
		wait, again := c.options.Retry.wait(failed, asked)
		if !again {
			return err
		}
		return sleep(ctx, wait)
	}
	patiently := func(ask func() error) error {
		for {
			err := ask()
			var unavailable *Unavailable
			if ctx.Err() != nil || !errors.As(err, &unavailable) {
				return err
			}
			if err := pause(unavailable.RetryAfter(), err); err != nil {
				return err
			}
		}
	}
	for {
		var txn *Transaction
		if err := patiently(func() (err error) { txn, err = c.Begin(ctx, options); return err }); err != nil {
			return nil, err
		}
		if err := work(ctx, txn); err != nil {
			return nil, err
		}
		prepared, err := txn.Prepare()
		if err != nil {
			return nil, err
		}
		// Nothing was decided while it is unavailable, so the same may be sent again: the id makes that safe.
		var verdict Verdict
		if err := patiently(func() (err error) { verdict, err = c.Commit(ctx, prepared); return err }); err != nil {
			return nil, err
		}
		if committed, ok := verdict.(*Committed); ok {
			return committed, nil
		}
		aborted := verdict.(*Aborted)
		// A fence of ours means that the request was lost on its way: the work itself was not refused.
		again := aborted.Reason == "fenced"
		if aborted.Retryable {
			again = !(txn.Blind() && (aborted.Reason == "row_exists" || aborted.Reason == "row_missing"))
		}
		if !again {
			return nil, &TransactionAborted{aborted}
		}
		if err := pause(aborted.RetryAfter, &TransactionAborted{aborted}); err != nil {
			return nil, err
		}
	}
}

// Commit asks for the verdict of a prepared commit. It may be repeated: the same id gets the same answer.
func (c *Client) Commit(ctx context.Context, prepared *PreparedCommit) (Verdict, error) {
	parameters := wire.TxnCommitParams{}
	if c.options.ClientName != "" {
		parameters.TribunalClient = &c.options.ClientName
	}
	answer := ask[wire.TxnOutcome](ctx, c, 0, func(ctx context.Context) (*response, error) {
		return c.wire.TxnCommit(ctx, prepared.TxnID, &parameters, prepared.Request)
	})
	if lost := answer.lost(); lost != nil {
		return c.resolve(ctx, prepared.TxnID, lost)
	}
	return verdict(answer)
}

// Result is the answer to one commit of a batch: a verdict, or why there is none.
type Result struct {
	Verdict Verdict
	Err     error
}

// Batch asks for many verdicts in one request; answers in the same order.
func (c *Client) Batch(ctx context.Context, commits []*PreparedCommit) ([]Result, error) {
	body := wire.BatchCommitRequest{Txns: make([]wire.BatchTxn, 0, len(commits))}
	for _, commit := range commits {
		request := commit.Request
		body.Txns = append(body.Txns, wire.BatchTxn{
			TxnID: commit.TxnID, Isolation: request.Isolation, Snapshots: request.Snapshots, Priority: request.Priority,
			Ack: request.Ack, Epoch: request.Epoch, Reads: request.Reads, Ranges: request.Ranges, Writes: request.Writes,
		})
	}
	answer := ask[wire.BatchCommitResponse](ctx, c, 0, func(ctx context.Context) (*response, error) {
		return c.wire.BatchCommit(ctx, body)
	})
	results := make([]Result, len(commits))
	if lost := answer.lost(); lost != nil {
		for at, commit := range commits {
			results[at].Verdict, results[at].Err = c.resolve(ctx, commit.TxnID, lost)
		}
		return results, nil
	}
	answers, err := settled(answer)
	if err != nil {
		return nil, err
	}
	if len(answers.Results) != len(commits) {
		return nil, misbehaved("%d results for %d commits", len(answers.Results), len(commits))
	}
	for at := range answers.Results {
		results[at].Verdict, results[at].Err = verdictOf(&answers.Results[at], false)
	}
	return results, nil
}

// Status asks what became of a transaction, waiting at most wait for a verdict. With fence, one that never arrived
// never will.
func (c *Client) Status(ctx context.Context, txnID string, fence bool, wait time.Duration) (Status, error) {
	waitMs := milliseconds(wait)
	parameters := wire.TxnStatusParams{Fence: &fence, WaitMs: &waitMs}
	outcome, err := settled(ask[wire.TxnOutcome](ctx, c, wait, func(ctx context.Context) (*response, error) {
		return c.wire.TxnStatus(ctx, txnID, &parameters)
	}))
	if err != nil {
		return Status{}, err
	}
	switch outcome.Status {
	case wire.TxnStateInFlight, wire.TxnStateUnknown, wire.TxnStateUnknownExpired:
		return Status{State: outcome.Status}, nil
	}
	verdict, err := verdictOf(outcome, true)
	return Status{verdict, outcome.Status}, err
}

// Abort records that a transaction will never commit, and returns what stands.
func (c *Client) Abort(ctx context.Context, txnID string) (Verdict, error) {
	return verdict(ask[wire.TxnOutcome](ctx, c, 0, func(ctx context.Context) (*response, error) {
		return c.wire.TxnAbort(ctx, txnID)
	}))
}

// Validate asks whether a commit would pass now, alone: would_commit or would_abort. Changes nothing.
func (c *Client) Validate(ctx context.Context, prepared *PreparedCommit) (*wire.TxnOutcome, error) {
	return settled(ask[wire.TxnOutcome](ctx, c, 0, func(ctx context.Context) (*response, error) {
		return c.wire.TxnValidate(ctx, prepared.TxnID, prepared.Request)
	}))
}

// Row reads a row of an embedded store, outside any transaction; nil if it is absent.
func (c *Client) Row(ctx context.Context, store, key string) (*Row, error) {
	if key == "" || key == "." || key == ".." {
		// No path has such a last segment: dots are resolved before it is sent.
		page, err := c.Rows(ctx, store, key, key+"\x00", 1)
		if err != nil || len(page.Rows) == 0 {
			return nil, err
		}
		return &page.Rows[0], nil
	}
	answer := ask[wire.Row](ctx, c, 0, func(ctx context.Context) (*response, error) {
		return c.wire.GetRow(ctx, store, key)
	})
	// Absence of the row is an answer; absence of the store is a mistake, and comes with a code of its own.
	if answer.problem != nil && answer.problem.Code == "row_missing" {
		return nil, nil
	}
	found, err := settled(answer)
	if err != nil || found.Version == nil {
		return nil, err
	}
	row, err := rowOf(found)
	return &row, err
}

// RowPage has rows in key order.
type RowPage struct {
	// Applied is the snapshot that they reflect.
	Applied Epoch
	Rows    []Row
	// More says that there are further rows in the range.
	More bool
}

// Rows reads at most limit rows of start..end of an embedded store, outside any transaction; an empty end goes to the
// end of the store.
func (c *Client) Rows(ctx context.Context, store, start, end string, limit int) (*RowPage, error) {
	limit32 := int32(limit)
	parameters := wire.ListRowsParams{Limit: &limit32}
	if start != "" {
		parameters.Start = &start
	}
	if end != "" {
		parameters.End = &end
	}
	answer, err := settled(ask[wire.RowPage](ctx, c, 0, func(ctx context.Context) (*response, error) {
		return c.wire.ListRows(ctx, store, &parameters)
	}))
	if err != nil {
		return nil, err
	}
	fields := reader{}
	page := &RowPage{Applied: Epoch(fields.number(&answer.Applied)), More: answer.More}
	for at := range answer.Rows {
		row, err := rowOf(&answer.Rows[at])
		if err != nil {
			return nil, err
		}
		page.Rows = append(page.Rows, row)
	}
	return page, fields.err
}

// DeclareStore declares a store, or changes one.
func (c *Client) DeclareStore(ctx context.Context, store string, declaration wire.StoreDeclaration) (*wire.StoreInfo, error) {
	return settled(ask[wire.StoreInfo](ctx, c, 0, func(ctx context.Context) (*response, error) {
		return c.wire.PutStore(ctx, store, declaration)
	}))
}

// Store returns where a store stands.
func (c *Client) Store(ctx context.Context, store string) (*wire.StoreInfo, error) {
	return settled(ask[wire.StoreInfo](ctx, c, 0, func(ctx context.Context) (*response, error) {
		return c.wire.GetStore(ctx, store)
	}))
}

// Stores returns all stores of the namespace.
func (c *Client) Stores(ctx context.Context) ([]wire.StoreInfo, error) {
	list, err := settled(ask[wire.StoreList](ctx, c, 0, func(ctx context.Context) (*response, error) {
		return c.wire.ListStores(ctx)
	}))
	if err != nil {
		return nil, err
	}
	return list.Stores, nil
}

// resolve settles a transaction whose reply was lost: it committed, or a fence makes sure that it never does.
func (c *Client) resolve(ctx context.Context, txnID string, lost error) (Verdict, error) {
	deadline := time.Now().Add(c.options.ResolveTimeout)
	for failed := 1; time.Now().Before(deadline); failed++ {
		found, err := c.Status(ctx, txnID, true, time.Second)
		var unavailable *Unavailable
		switch {
		case err == nil && found.Verdict != nil:
			return found.Verdict, nil
		case err == nil:
			lost = fmt.Errorf("its status is %s", found.State)
			if found.State == wire.TxnStateUnknownExpired {
				return nil, &OutcomeUnknown{txnID, lost}
			}
		case ctx.Err() != nil:
			return nil, &OutcomeUnknown{txnID, ctx.Err()}
		case errors.As(err, &unavailable):
			lost = err
		default:
			return nil, err
		}
		if err := sleep(ctx, c.options.Retry.step(failed)); err != nil {
			return nil, &OutcomeUnknown{txnID, err}
		}
	}
	return nil, &OutcomeUnknown{txnID, lost}
}

type response = http.Response

// answer is an answer of 2xx, or a status with a problem, or none.
type answer[T any] struct {
	data   *T
	header http.Header
	// status is that of a refusal.
	status  int
	problem *Problem
	// err is why there is no answer, or none that can be read.
	err       error
	neverSent bool
	// garbled says that an answer came which does not fit the API.
	garbled bool
}

// ask asks, within the time-out. It never repeats.
func ask[T any](ctx context.Context, c *Client, wait time.Duration, call func(context.Context) (*response, error)) answer[T] {
	ctx, cancel := context.WithTimeout(ctx, c.options.Timeout+max(wait, 0))
	defer cancel()
	response, err := call(ctx)
	if err != nil {
		var network *net.OpError
		return answer[T]{err: err, neverSent: errors.As(err, &network) && network.Op == "dial"}
	}
	defer func() { _ = response.Body.Close() }()
	body, err := io.ReadAll(io.LimitReader(response.Body, answerBytesMax))
	if err != nil {
		return answer[T]{err: err}
	}
	if response.StatusCode/100 != 2 {
		problem := new(Problem)
		if json.Unmarshal(body, problem) != nil || problem.Code == "" {
			// Somebody between us and the service has answered.
			problem = nil
		}
		return answer[T]{status: response.StatusCode, problem: problem}
	}
	data := new(T)
	if err := json.Unmarshal(body, data); err != nil {
		return answer[T]{err: err, garbled: true}
	}
	return answer[T]{data: data, header: response.Header}
}

// lost tells why nobody knows what became of a commit; nil if the answer says it.
func (a answer[T]) lost() error {
	switch {
	case a.err != nil && !a.neverSent && !a.garbled:
		return a.err
	// 409: the same id waits for its verdict. The others: taken in or not, nobody can tell.
	case slices.Contains([]int{409, 500, 502, 504}, a.status):
		return errors.New("status " + strconv.Itoa(a.status))
	}
	return nil
}

func settled[T any](a answer[T]) (*T, error) {
	switch {
	case a.data != nil:
		return a.data, nil
	case a.garbled:
		return nil, misbehaved("%v", a.err)
	case a.err != nil:
		return nil, &Unavailable{Err: a.err}
	case a.problem != nil:
		return nil, errorOf(*a.problem)
	case a.status >= 500:
		return nil, &Unavailable{Err: fmt.Errorf("status %d", a.status)}
	}
	return nil, misbehaved("status %d without a problem", a.status)
}

func verdict(a answer[wire.TxnOutcome]) (Verdict, error) {
	outcome, err := settled(a)
	if err != nil {
		return nil, err
	}
	return verdictOf(outcome, a.header.Get("Idempotency-Replayed") == "true")
}

func rowOf(row *wire.Row) (Row, error) {
	key, ok, err := keyOf(row.Key, row.KeyB64)
	if err == nil && !ok {
		err = misbehaved("a row without a key")
	}
	fields := reader{err: err}
	version := Version(fields.number(row.Version))
	return Row{Key: key, Value: valueOf(row.Value, row.ValueB64), Version: version}, fields.err
}

func milliseconds(wait time.Duration) int32 {
	return int32(min(max(wait, 0), time.Minute) / time.Millisecond)
}
